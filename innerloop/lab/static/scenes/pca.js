// PCA: points, the ellipse of the matrix that is left, and two directions that turn to its axes.
import {between, clamp, make, path, randomNumbers} from "../svg.js";
import {Plane} from "../plane.js";

const REACH = 3, COUNT = 20;

export default function (lab) {
  let seed = 3;
  const points = [], starts = [];
  const sample = () => {
    const {normal} = randomNumbers(seed), angle = 0.6 + 0.8 * (seed - 3), fitting = (v) => Number(clamp(v, -2.9, 2.9).toFixed(4));
    points.splice(0, points.length, ...Array.from({length: COUNT}, () => { const a = 1.15 * normal(), b = 0.55 * normal(); return [fitting(a * Math.cos(angle) - b * Math.sin(angle)), clamp(fitting(a * Math.sin(angle) + b * Math.cos(angle)), -2, 2)]; }));
    starts.splice(0, starts.length, [-1.3, 1.2], [1.9, -0.3]);
  };
  sample();
  const groups = {
    points: {points, least: COUNT, most: COUNT, noun: "point", fixed: true, color: () => "var(--quiet)"},
    starts: {points: starts, least: 2, most: 2, noun: "start of direction", fixed: true, shape: "cross", color: (i) => (i ? "var(--third)" : "var(--accent)")},
  };
  const plane = new Plane(lab, {reach: REACH, label: "Points and the directions that turn", groups, equal: true, changed: () => { lab.redrawPicture(); lab.request(); }});
  const again = document.createElement("button");
  again.type = "button"; again.textContent = "New points";
  again.onclick = () => { seed += 1; sample(); lab.request(); };
  lab.tools.append(again);

  return {
    values: () => ({points, starts}),
    draw(answer, t, step) {
      const under = plane.begin(), {vectors, matrices, axes, lengths} = answer.picture;
      const at = ([x, y]) => [plane.x(x), plane.y(y)], now = between(vectors, t), [[a, b], [, d]] = between(matrices, t);
      axes.forEach((axis, i) => { const far = axis.map((part) => 5 * part), [x1, y1] = at(far), [x2, y2] = at(far.map((part) => -part)); make(under, "line", {x1, y1, x2, y2, class: "reference", "stroke-width": 1.75, "stroke-dasharray": "7 6", opacity: lengths[i] ? 0.9 : 0.3}); });
      make(under, "path", {d: `${path(ellipse(a, b, d).map(at))}Z`, fill: "var(--accent)", "fill-opacity": 0.09, stroke: "var(--accent)", "stroke-opacity": 0.6, "stroke-width": 2});
      ["transformer", "other"].forEach((kind, i) => {
        const moved = i === 0 ? t : t - (vectors.length - 1) / 2;
        vectors.slice(0, Math.floor(t) + 1).forEach((each, k) => arrow(under, at, unit(each[i]), kind, 1.25, 0.1 + 0.25 * k / Math.max(1, t), 1.9));
        arrow(under, at, unit(now[i]), kind, 4, moved > 0 || i === 0 ? 1 : 0.45, 1.9);
      });
      plane.finish();
      lab.legend([["line", "transformer", "first direction"], ["line", "other", "second direction"], ["dashed", "reference", "eigenvectors"], ["swatch", "var(--accent)", `the matrix that is left after step ${step}`]]);
    },
  };
}

const unit = ([x, y]) => { const size = Math.hypot(x, y) || 1; return [x / size, y / size]; };

/** The curve √M u for unit vectors u: the shape of the data that the matrix describes. */
function ellipse(a, b, d) {
  const middle = (a + d) / 2, half = Math.hypot((a - d) / 2, b), angle = 0.5 * Math.atan2(2 * b, a - d);
  const long = 2 * Math.sqrt(Math.max(0, middle + half)), short = 2 * Math.sqrt(Math.max(0, middle - half));
  return Array.from({length: 64}, (_, i) => { const u = 2 * Math.PI * i / 64, x = long * Math.cos(u), y = short * Math.sin(u); return [x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle)]; });
}

function arrow(under, at, [x, y], kind, width, opacity, length) {
  const [x1, y1] = at([0, 0]), [x2, y2] = at([length * x, length * y]), size = Math.hypot(x2 - x1, y2 - y1), ux = (x2 - x1) / size, uy = (y2 - y1) / size, head = 4 * Math.sqrt(width) + 3;
  make(under, "line", {x1, y1, x2: x2 - head * ux * 0.8, y2: y2 - head * uy * 0.8, class: kind, "stroke-width": width, opacity, "stroke-linecap": "round"});
  make(under, "path", {d: path([[x2, y2], [x2 - head * ux - head * 0.55 * uy, y2 - head * uy + head * 0.55 * ux], [x2 - head * ux + head * 0.55 * uy, y2 - head * uy - head * 0.55 * ux]]) + "Z", class: `fill-${kind}`, opacity});
}
