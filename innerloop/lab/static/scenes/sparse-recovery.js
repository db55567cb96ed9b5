// Sparse recovery: hollow bars are the truth; every method's coefficients stand beside each other.
import {between, clamp, html, make, randomNumbers} from "../svg.js";
import {Columns} from "../columns.js";

const COUNT = 20, REACH = 2;
const FILLS = {transformer: "fill-transformer", s2: "fill-s2", s3: "fill-s3", s4: "fill-s4", s5: "fill-s5"};

export default function (lab) {
  let seed = 1;
  const truth = new Array(COUNT).fill(0);
  const sample = () => {
    const {uniform, normal} = randomNumbers(seed + 11);
    truth.fill(0);
    if (seed === 1) Object.assign(truth, {3: 1.3, 8: -0.9, 14: 0.7});
    while (truth.filter(Boolean).length < 3) truth[Math.floor(uniform() * COUNT)] = Number((Math.sign(normal()) * (0.5 + 0.9 * uniform())).toFixed(3));
  };
  sample();
  const columns = new Columns(lab, {
    values: truth, reach: REACH, step: 0.1, label: "True coefficients and what each method finds",
    name: (i) => `true coefficient ${i + 1}`, tick: (i) => (i % 5 === 4 || i === 0 ? String(i + 1) : ""),
    changed: () => { lab.redrawPicture(); lab.request(); },
  });
  html(lab.tools, "button", {type: "button", onclick: () => { seed += 1; sample(); lab.request(); }}, "New problem");
  html(lab.tools, "button", {type: "button", onclick: () => { truth.fill(0); truth[4] = 1; lab.request(); }}, "One coefficient");

  return {
    values: () => ({truth, seed}),
    draw(answer, t, step) {
      const over = columns.begin(), {methods} = answer.picture, gap = Math.min(5.5, columns.wide / (methods.length + 1));
      methods.forEach(({values, kind}, m) => {
        const now = between(values, t), shift = (m - (methods.length - 1) / 2) * gap;
        now.forEach((value, i) => {
          const x = columns.x(i) + shift, y = columns.y(clamp(value, -REACH, REACH)), zero = columns.y(0), big = kind === "transformer";
          make(over, "line", {x1: x, x2: x, y1: zero, y2: y, class: kind, "stroke-width": big ? 2.5 : 1.6, opacity: 0.8});
          if (Math.abs(value) > 1e-3 || big) make(over, "circle", {cx: x, cy: y, r: big ? 4 : 2.6, class: FILLS[kind]});
        });
      });
      lab.legend([["swatch-line", "", "the true coefficients"], ...methods.map(({name, kind}) => ["dot", kind, name === "lasso" ? "lasso (solved exactly)" : `${name}, ${name.includes("trained") ? "layer" : "step"} ${step}`])]);
    },
  };
}
