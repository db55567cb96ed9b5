// Bandits: the actions of a turn as points, the hidden direction, and what the transformer believes.
import {clamp, html, make, path} from "../svg.js";
import {Plane} from "../plane.js";

const REACH = 1.5;

export default function (lab) {
  let seed = 4;
  const weights = [[0.9, 0.55]];
  const groups = {weights: {points: weights, least: 1, most: 1, noun: "hidden direction", fixed: true, shape: "cross", color: () => "var(--reference)"}};
  const plane = new Plane(lab, {reach: REACH, label: "Actions of this turn, the hidden direction and the estimate of it", groups, equal: true, changed: () => { lab.redrawPicture(); lab.request(); }});
  html(lab.tools, "button", {type: "button", onclick: () => { seed += 1; lab.request(); }}, "New game");

  return {
    values: () => ({seed, weights: weights[0]}),
    draw(answer, t, step) {
      const under = plane.begin(), p = answer.picture, at = ([x, y]) => [plane.x(x), plane.y(y)], turn = Math.max(0, step - 1);
      arrow(under, at, weights[0], "reference", 3, 0.9, "7 6");
      p.estimates.slice(0, turn + 1).forEach((each, k) => arrow(under, at, each.map((v) => clamp(v, -3, 3)), "transformer", k === turn ? 4 : 1.2, k === turn ? 1 : 0.12 + 0.2 * k / (turn + 1)));
      if (step > 0) p.features[turn].forEach((action, i) => {
        const [x, y] = at(action), odds = p.odds[turn][i], chosen = p.actions[turn] === i, policy = p.policy_actions[turn] === i;
        make(under, "circle", {cx: x, cy: y, r: 8 + 22 * odds, fill: "var(--c2)", opacity: chosen ? 0.35 : 0.14});
        make(under, "circle", {cx: x, cy: y, r: 7, fill: chosen ? "var(--c2)" : "var(--card)", stroke: "var(--c2)", "stroke-width": 3});
        if (policy) make(under, "circle", {cx: x, cy: y, r: 13, fill: "none", stroke: "var(--reference)", "stroke-width": 1.75, "stroke-dasharray": "3 3"});
        make(under, "text", {x: x + 14, y: y - 12}, `${i + 1}: ${Math.round(100 * odds)} %`);
      });
      plane.finish();
      lab.legend([["dashed", "reference", "hidden direction (drag the cross)"], ["line", "transformer", "the transformer’s estimate"], ["swatch", "var(--c2)", "actions: size is odds, full is chosen"], ["dashed-ring", "", "what the policy chose"]]);
    },
  };
}

function arrow(under, at, [x, y], kind, width, opacity, dash = "") {
  const [x1, y1] = at([0, 0]), [x2, y2] = at([x, y]), size = Math.hypot(x2 - x1, y2 - y1);
  if (size < 2) return;
  const ux = (x2 - x1) / size, uy = (y2 - y1) / size, head = 4 * Math.sqrt(width) + 3;
  make(under, "line", {x1, y1, x2: x2 - 0.8 * head * ux, y2: y2 - 0.8 * head * uy, class: kind, "stroke-width": width, opacity, ...(dash ? {"stroke-dasharray": dash} : {})});
  make(under, "path", {d: `${path([[x2, y2], [x2 - head * ux - 0.55 * head * uy, y2 - head * uy + 0.55 * head * ux], [x2 - head * ux + 0.55 * head * uy, y2 - head * uy - 0.55 * head * ux]])}Z`, class: `fill-${kind}`, opacity});
}
