// A line through points: the fan of lines after every step, the best line, and the points.
import {between, format, html, make, randomNumbers} from "../svg.js";
import {Plane} from "../plane.js";

const REACH = 3, COUNT = 16, MOST = 30;

export default function (lab) {
  let seed = 7, noise = 0.35, kappa = 1;
  const points = [];
  const sample = () => {
    const {uniform, normal} = randomNumbers(seed), spread = 1 / Math.sqrt(kappa), fitting = (v) => Number(Math.max(-2.95, Math.min(2.95, v)).toFixed(4));
    const rows = Array.from({length: COUNT}, (_, i) => [(i + uniform()) / COUNT * 2 - 1, normal()]);
    points.splice(0, points.length, ...rows.map(([u, e]) => { const x = 1.74 * spread * u; return [fitting(x), fitting(0.5 + (kappa > 1 ? Math.min(1.4, 0.85 / spread) : 0.85) * x + noise * e)]; }));
  };
  sample();
  const plane = new Plane(lab, {
    reach: REACH, label: "Points and the line after each step",
    groups: {points: {points, least: 2, most: MOST, noun: "point"}},
    changed: () => { lab.redrawPicture(); lab.request(); },
  });
  const draw = () => { plane.selected = null; lab.redrawPicture(); lab.request(); };
  plane.buttons(lab.tools, () => { seed += 1; sample(); draw(); });
  slider("noise", 0, 1.2, 0.05, noise, (v) => { noise = v; }, (v) => format(v));
  slider("κ", 0, 2, 0.1, 0, (v) => { kappa = 10 ** v; }, (v) => format(10 ** v));

  function slider(name, least, most, step, value, set, text) {
    const label = html(lab.tools, "label", {}, name === "κ" ? "unevenness κ" : name), input = html(label, "input", {type: "range", min: least, max: most, step, value, "aria-label": name === "κ" ? "condition number κ of new points" : "noise of new points"});
    const output = html(label, "output", {}, text(value));
    input.oninput = () => { set(+input.value); output.textContent = text(+input.value); sample(); draw(); };
  }

  return {
    values: () => ({points}),
    controlled: () => true,
    draw(answer, t, step) {
      const under = plane.begin(), {lines, best} = answer.picture;
      const line = ([a, b], attributes) => make(under, "line", {x1: plane.x(-4), y1: plane.y(a - 4 * b), x2: plane.x(4), y2: plane.y(a + 4 * b), ...attributes});
      const shown = Math.floor(t + 1e-6);
      lines.slice(0, shown + 1).forEach((each, i) => line(each, {class: "transformer", "stroke-width": 1.4, opacity: 0.1 + 0.4 * (i + 1) / (shown + 1)}));
      line(best, {class: "reference", "stroke-width": 2.25, "stroke-dasharray": "7 6"});
      line(between(lines, t), {class: "transformer fit", "stroke-width": 4, "stroke-linecap": "round"});
      plane.finish();
      lab.legend([["point", "", `your points (κ = ${answer.picture.kappa === null ? "∞" : format(answer.picture.kappa)})`], ["line", "transformer", `the transformer’s line after step ${step}`], ["dashed", "reference", "least squares"]]);
    },
  };
}
