// A trained network: labels as hollow bars, its predictions and least squares beside them.
import {between, clamp, html, make} from "../svg.js";
import {Columns} from "../columns.js";

const COUNT = 11, REACH = 6;

export default function (lab) {
  let seed = 1, own = null, verdicts = null, columns = null;
  const labels = [];
  html(lab.tools, "button", {type: "button", onclick: () => { seed += 1; own = null; lab.request(); }}, "New problem");

  return {
    values: () => ({seed, ...(own ? {labels: own} : {})}),
    received(answer) {
      if (!own) labels.splice(0, labels.length, ...answer.picture.labels);
      if (!verdicts) { verdicts = "asked"; lab.aside({seed, identify: true}).then((found) => { verdicts = found ? found.picture.verdicts : null; if (found) lab.redraw(); }); }
    },
    draw(answer, t, step) {
      columns ??= new Columns(lab, {
        values: labels, count: COUNT, reach: REACH, step: 0.2, label: "Labels, and what the network predicts from the examples before",
        name: (i) => `label of example ${i + 1}`, tick: (i) => (i === 10 ? "query" : String(i + 1)),
        changed: () => { own = labels; lab.redrawPicture(); lab.request(); },
      });
      const over = columns.begin(), {predictions, fits, target} = answer.picture, now = between(predictions, t), y = (v) => columns.y(clamp(v, -REACH, REACH));
      make(over, "rect", {x: columns.x(10) - Math.min(13, columns.wide * 0.42), width: 2 * Math.min(13, columns.wide * 0.42), y: Math.min(y(target), y(0)), height: Math.max(3, Math.abs(y(target) - y(0))), rx: 3, fill: "none", stroke: "var(--quiet)", "stroke-width": 1.75, "stroke-dasharray": "4 3"});
      fits.forEach((fit, i) => make(over, "line", {x1: columns.x(i) - columns.wide * 0.4, x2: columns.x(i) + columns.wide * 0.4, y1: y(fit), y2: y(fit), class: "reference", "stroke-width": 2.5, "stroke-dasharray": "5 3"}));
      predictions.slice(0, Math.floor(t) + 1).forEach((row, k) => row.forEach((value, i) => make(over, "circle", {cx: columns.x(i), cy: y(value), r: 2.5, class: "fill-transformer", opacity: 0.12 + 0.3 * k / predictions.length})));
      now.forEach((value, i) => make(over, "circle", {cx: columns.x(i), cy: y(value), r: 6, class: "fill-transformer", stroke: "var(--card)", "stroke-width": 1.5}));
      lab.legend([["swatch-line", "", "labels (drag them); dashed: what the query’s would be"], ["dot", "transformer", `the network’s prediction after layer ${step}`], ["dashed", "reference", "least squares on the examples before"]]);
      table(step);
    },
  };

  function table(step) {
    lab.extra.hidden = false;
    lab.extra.replaceChildren();
    html(lab.extra, "h2", {}, "What each layer computes, according to `identify`");
    if (!Array.isArray(verdicts)) { html(lab.extra, "p", {class: "certificate"}, "Every layer is being compared with about forty algorithms on random problems. This takes a while, but only once."); return; }
    const wrap = html(lab.extra, "div", {class: "scroll"}), grid = html(wrap, "table"), head = html(html(grid, "thead"), "tr"), body = html(grid, "tbody");
    for (const title of ["layer", "what it does", "share explained"]) html(head, "th", {scope: "col"}, title);
    verdicts.slice(0, -1).forEach((each, k) => {
      const row = html(body, "tr", {class: k === step ? "current" : ""});
      html(row, "th", {scope: "row"}, each.layer); html(row, "td", {}, each.does); html(row, "td", {}, each.share.toFixed(3));
    });
    html(lab.extra, "p", {class: "certificate"}, `Verdict: it ${verdicts[verdicts.length - 1].does}.`);
  }
}
