// Break it: a square for every weight, and under them the line that the changed weights draw.
import {canvasFor, clamp, make, scale} from "../svg.js";

const REACH = 2.6;

export default function (lab) {
  let weight = null;
  const slider = () => document.querySelector("#controls input[name=factor]");

  return {
    values: () => (weight === null ? {} : {weight}),
    controlled(name) { if (name === "algorithm") weight = null; return true; },
    draw(answer, t, step) {
      const p = answer.picture;
      weight = p.chosen;
      const byLayer = p.layers.map((_, layer) => p.weights.map((each, i) => ({...each, i})).filter((each) => each.layer === layer + 1));
      const most = Math.max(...byLayer.map((each) => each.length));
      const {svg, width, height} = canvasFor(lab.stage, (w) => (w < 480 ? 1.2 * w : Math.min(0.8 * w, 520)), "Weights, layer by layer, and the line that they draw", "group");
      const focused = document.activeElement?.dataset?.weight;
      svg.replaceChildren();
      const wide = width / p.layers.length, size = Math.min(15, wide * 0.42, (height * 0.42) / Math.ceil(most / 2) - 2), top = 40, largest = Math.max(...p.weights.map((each) => Math.abs(each.value)));
      byLayer.forEach((list, layer) => {
        const before = p.layers[0] === "step 1" ? 0 : 1, number = layer - before, bad = number >= 0 && number < p.broken.length && p.broken[number], middle = (layer + 0.5) * wide;
        if (bad) make(svg, "rect", {x: layer * wide + 1.5, y: 2, width: wide - 3, height: top + Math.ceil(most / 2) * (size + 3) + 4, rx: 8, fill: "var(--third)", opacity: 0.2});
        make(svg, "text", {x: middle, y: 16, "text-anchor": "middle"}, wide > 52 ? `layer ${layer + 1}` : String(layer + 1));
        make(svg, "text", {x: middle, y: 31, "text-anchor": "middle", opacity: 0.9}, bad ? "✗" : p.layers[layer].startsWith("step") ? (wide > 44 ? p.layers[layer] : p.layers[layer].slice(5)) : "·");
        list.forEach((each, k) => {
          const group = make(svg, "g", {class: "cellbox", tabindex: each.i === p.chosen ? "0" : "-1", role: "radio", "aria-checked": each.i === p.chosen, "aria-label": `${each.label} = ${each.value}`, "data-weight": each.i});
          make(group, "rect", {x: middle + (k % 2 ? 1.5 : -size - 1.5), y: top + Math.floor(k / 2) * (size + 3), width: size, height: size, rx: 3, fill: each.value < 0 ? "var(--reference)" : "var(--accent)", "fill-opacity": 0.25 + 0.75 * Math.abs(each.value) / largest, ...(each.i === p.chosen ? {stroke: "var(--ink)", "stroke-width": 3} : {})});
          group.onclick = () => choose(each.i);
          group.onkeydown = (event) => { const move = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key]; if (move) { event.preventDefault(); choose(clamp(each.i + move, 0, p.weights.length - 1), true); } };
          if (String(each.i) === focused) group.focus();
        });
      });
      drawLines(svg, width, top + Math.ceil(most / 2) * (size + 3) + 16, height, p, t);
      lab.legend([["swatch", "var(--accent)", "a weight (negative: orange)"], ["line", "transformer", `the line of these weights after step ${step}`], ["dashed", "reference", "the line of the right weights"], ["swatch", "var(--third)", "a step that is not the algorithm’s (✗)"]]);
    },
  };

  function choose(i, focus = false) {
    weight = i;
    if (lab.values.factor === 1) { lab.values.factor = 1.2; slider().value = 1.2; slider().nextElementSibling.textContent = "1.2"; }
    lab.answer.picture.chosen = i;
    lab.redraw();
    if (focus) document.querySelector(`[data-weight="${i}"]`)?.focus();
    lab.request();
  }

  function drawLines(svg, width, top, bottom, p, t) {
    const clip = make(svg, "g"), x = scale(-REACH, REACH, 0, width), y = scale(-REACH, REACH, bottom, top), k = Math.round(t);
    make(clip, "line", {class: "axis", x1: 0, x2: width, y1: y(0), y2: y(0)});
    const line = (each, attributes) => { if (!each) return; const ends = [-3, 3].map((u) => [x(u), clamp(y(each[0] + each[1] * u), top - 4, bottom + 40)]); make(clip, "line", {x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1], ...attributes}); };
    line(p.intact[k], {class: "reference", "stroke-width": 2.25, "stroke-dasharray": "7 6"});
    p.lines.slice(0, k).forEach((each, i) => line(each, {class: "transformer", "stroke-width": 1.2, opacity: 0.1 + 0.3 * i / (k + 1)}));
    line(p.lines[k], {class: "transformer", "stroke-width": 3.5});
    for (const [px, py] of p.points) make(clip, "circle", {cx: x(px), cy: y(py), r: 4.5, class: "ink", stroke: "var(--card)", "stroke-width": 1.5});
  }
}
