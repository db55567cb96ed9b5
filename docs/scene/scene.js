// The scene of the first page: drag a point, and the forward pass runs again, here in the page.
{
  const models = JSON.parse(document.getElementById("weights").textContent);
  const scene = document.getElementById("scene"), svg = scene.querySelector("svg");
  const slider = scene.querySelector("input"), play = scene.querySelector(".play");
  const select = scene.querySelector("select"), line = scene.querySelector("p.said");
  const W = 640, H = 300, X = 2.4, Y = 2.4, MOST = 12, LEAST = 3;
  let points = [[-2, -1.3], [-1.5, -0.7], [-1.1, -1.2], [-0.4, 0.1], [0.1, -0.2], [0.7, 0.9], [1.2, 0.5], [1.9, 1.5]];
  const px = (x) => ((x + X) / (2 * X)) * W, py = (y) => H - ((y + Y) / (2 * Y)) * H;
  const clamp = (v, m) => Math.max(-m, Math.min(m, v));
  const make = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const ends = [-X, X];
  function tokens(model) {
    const {x, y} = model.places, rows = [...points, ...ends.map((e) => [e, 0])];
    return rows.map(([t, label]) => {
      const token = new Array(model.width).fill(0);
      token[x[0]] = 1; token[x[1]] = t; token[y[0]] = label;
      return token;
    });
  }
  function lines() {
    const model = models[select.value], read = model.places.yhat ? [model.places.yhat[0], 1] : [model.places.y[0], -1];
    return forward(model, tokens(model), points.length).map((out) => out.slice(points.length).map((h) => h[read[0]] * read[1]));
  }
  function leastSquares() {
    const n = points.length, sum = (f) => points.reduce((s, p) => s + f(p), 0);
    const sx = sum((p) => p[0]), sy = sum((p) => p[1]), sxx = sum((p) => p[0] ** 2), sxy = sum((p) => p[0] * p[1]);
    const slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
    return ends.map((e) => (sy - slope * sx) / n + slope * e);
  }
  function draw() {
    const all = lines(), step = +slider.value, goal = leastSquares();
    slider.max = all.length - 1;
    const off = Math.max(...all[step].map((y, i) => Math.abs(y - goal[i])));
    line.textContent = `step ${step} of ${all.length - 1}: off by ${off < 1e-12 ? "rounding" : off.toExponential(0)} from least squares`;
    const focus = svg.contains(document.activeElement) ? document.activeElement.dataset.point : null;
    svg.replaceChildren();
    const radius = Math.max(8, (11 * W) / (svg.clientWidth || W)); // large enough for a finger
    all.slice(0, step + 1).forEach((y, k) => svg.append(make("line", {x1: 0, x2: W, y1: py(y[0]), y2: py(y[1]), class: k === step ? "now" : "before"})));
    points.forEach(([x, y], k) => svg.append(make("circle", {cx: px(x), cy: py(y), r: radius, tabindex: 0, role: "button", "data-point": k,
      "aria-label": `point ${k + 1} at ${x.toFixed(1)}, ${y.toFixed(1)}: arrow keys move it, Delete removes it`})));
    if (focus) svg.querySelector(`[data-point="${focus}"]`)?.focus();
  }
  const move = (k, x, y) => { points[k] = [clamp(x, X), clamp(y, Y)]; draw(); };
  const at = (event) => { const box = svg.getBoundingClientRect(); return [((event.clientX - box.left) / box.width) * 2 * X - X, Y - ((event.clientY - box.top) / box.height) * 2 * Y]; };
  let held = null, timer = null;
  svg.addEventListener("pointerdown", (event) => {
    held = event.target.dataset.point;
    if (held === undefined) { held = null; if (points.length < MOST) { points.push(at(event)); draw(); } return; }
    svg.setPointerCapture(event.pointerId); event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => { if (held !== null) move(held, ...at(event)); });
  svg.addEventListener("pointerup", () => { held = null; });
  svg.addEventListener("pointercancel", () => { held = null; });
  const drop = (k) => { if (k !== undefined && points.length > LEAST) { points.splice(k, 1); draw(); } };
  svg.addEventListener("dblclick", (event) => drop(event.target.dataset.point));
  svg.addEventListener("keydown", (event) => {
    const k = event.target.dataset.point, by = {ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1]}[event.key];
    if (by) { event.preventDefault(); move(k, points[k][0] + by[0], points[k][1] + by[1]); }
    if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); drop(k); }
  });
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (+slider.value === +slider.max) slider.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => { slider.value = +slider.value + 1; draw(); if (+slider.value === +slider.max) stop(); }, 300);
    draw();
  });
  slider.addEventListener("input", () => { stop(); draw(); });
  select.addEventListener("change", draw);
  draw();
}
