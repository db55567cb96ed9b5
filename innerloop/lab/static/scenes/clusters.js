// Clusters: points in the colours of the means that hold them, the means, and the paths they took.
import {between, clamp, html, make, path, randomNumbers} from "../svg.js";
import {Plane} from "../plane.js";

const REACH = 3, MOST = 36, CENTRES = [[-1.6, -0.8], [1.6, -0.7], [0.3, 1.2], [-2.1, 1.2]];

export default function (lab) {
  let seed = 5, count = 3;
  const points = [], starts = [];
  const color = (i) => `var(--c${i})`;
  const sample = () => {
    const {uniform, normal} = randomNumbers(seed), fitting = (v) => Number(clamp(v, -2.9, 2.9).toFixed(4));
    const flip = [[1, 1], [-1, 1], [1, -1], [-1, -1]][(seed - 5) % 4], turn = ([x, y]) => [x * flip[0], y * flip[1]];
    points.splice(0, points.length, ...Array.from({length: 30}, (_, i) => { const [x, y] = turn(CENTRES[i % count]); return [fitting(x + 0.42 * normal()), clamp(fitting(y + 0.42 * normal()), -2, 2)]; }));
    starts.splice(0, starts.length, ...Array.from({length: count}, () => [fitting(1.1 * (uniform() - 0.5)), fitting(1.1 * (uniform() - 0.5))]));
  };
  sample();
  const groups = {points: {points, least: 2, most: MOST, noun: "point"}, starts: {points: starts, least: 2, most: 4, noun: "start of mean", fixed: true, shape: "cross", color}};
  const plane = new Plane(lab, {reach: REACH, label: "Points and the means of their clusters", groups, equal: true, changed: () => { lab.redrawPicture(); lab.request(); }});
  plane.buttons(lab.tools, () => { seed += 1; sample(); plane.selected = null; lab.request(); });
  const label = html(lab.tools, "label", {}, "clusters"), input = html(label, "input", {type: "range", min: 2, max: 4, step: 1, value: count});
  const output = html(label, "output", {}, String(count));
  input.oninput = () => { count = +input.value; output.textContent = input.value; sample(); plane.selected = null; lab.request(); };

  return {
    values: () => ({points, starts}),
    draw(answer, t, step) {
      const under = plane.begin(), {means, shares} = answer.picture, now = between(means, t), held = between(shares, t);
      const same = held.length === points.length && now.length === starts.length;
      groups.points.color = (i) => (same ? mix(held[i]) : "var(--ink)");
      if (same) points.forEach(([x, y], i) => held[i].forEach((share, m) => { if (share > 0.04) make(under, "line", {x1: plane.x(x), y1: plane.y(y), x2: plane.x(now[m][0]), y2: plane.y(now[m][1]), stroke: color(m), "stroke-width": 1.2, opacity: 0.38 * share}); }));
      now.forEach((mean, m) => {
        const trail = [...means.slice(0, Math.floor(t) + 1).map((each) => each[m]), mean].map(([x, y]) => [plane.x(x), plane.y(y)]);
        make(under, "path", {d: path(trail), class: "line", stroke: color(m), "stroke-width": 2.5, opacity: 0.75, "stroke-dasharray": "1 6"});
        trail.slice(0, -1).forEach(([x, y]) => make(under, "circle", {cx: x, cy: y, r: 3, fill: color(m), opacity: 0.55}));
        make(under, "circle", {cx: plane.x(mean[0]), cy: plane.y(mean[1]), r: 15, fill: color(m), opacity: 0.22});
        make(under, "circle", {cx: plane.x(mean[0]), cy: plane.y(mean[1]), r: 9, fill: "var(--card)", stroke: color(m), "stroke-width": 4});
      });
      plane.finish();
      lab.legend([["point", "", "your points, in the colours of the means that hold them"], ["ring", "", `means after step ${step}`], ["cross", "", "where they start"]]);
    },
  };
}

/** The colour between those of the means, by their shares. */
function mix(shares) {
  const css = getComputedStyle(document.documentElement), sum = [0, 0, 0];
  shares.forEach((share, m) => { const hex = css.getPropertyValue(`--c${m}`).trim(); [0, 1, 2].forEach((c) => { sum[c] += share * parseInt(hex.slice(1 + 2 * c, 3 + 2 * c), 16); }); });
  return `rgb(${sum.map((part) => Math.round(clamp(part, 0, 255))).join(" ")})`;
}
