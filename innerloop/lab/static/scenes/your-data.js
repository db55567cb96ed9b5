// Your data: a file by choice or drop, columns by name, and every step's predictions.
import {between, canvasFor, clamp, format, html, make, scale} from "../svg.js";
import {niceTicks} from "../panels.js";

const MARGIN = {left: 52, right: 12, top: 10, bottom: 40}, MOST = 5;
const EXAMPLE = "hours,cups of coffee,lines of code\n1.0,0,24\n1.5,1,41\n2.0,0,38\n2.5,2,77\n3.0,1,69\n3.5,1,80\n4.0,3,128\n4.5,2,112\n5.0,0,91\n5.5,2,138\n6.0,4,187\n6.5,1,131\n7.0,3,184\n7.5,2,170\n8.0,4,226\n";

export default function (lab) {
  let text = EXAMPLE, target = null, features = null, name = "an example", table = null;
  const chooser = html(lab.tools, "label", {class: "file"}, "Choose a CSV file"), input = html(chooser, "input", {type: "file", accept: ".csv,.tsv,.txt,text/csv", "aria-label": "Choose a CSV file"});
  html(lab.tools, "button", {type: "button", onclick: () => take(EXAMPLE, "an example")}, "Example");
  const columns = html(lab.tools, "div", {class: "checks"});
  input.onchange = async () => { if (input.files[0]) await open(input.files[0]); input.value = ""; };
  const stage = lab.stage;
  stage.ondragover = (event) => { event.preventDefault(); stage.classList.add("drop", "over"); };
  stage.ondragleave = () => stage.classList.remove("drop", "over");
  stage.ondrop = async (event) => { event.preventDefault(); stage.classList.remove("drop", "over"); if (event.dataTransfer.files[0]) await open(event.dataTransfer.files[0]); };

  async function open(file) {
    if (file.size > 1e6) return refuse(`${file.name} has ${file.size.toLocaleString("en")} bytes, up to 1,000,000 are read.`);
    take(await file.text(), file.name);
  }
  function take(content, from) { text = content; name = from; target = features = null; lab.request(); }
  function refuse(message) { const notice = document.getElementById("notice"); notice.textContent = message; notice.hidden = false; }

  function choose() {
    columns.replaceChildren();
    const label = html(columns, "label", {}, "predict"), select = html(label, "select", {"aria-label": "Column to predict"});
    for (const each of table.names) html(select, "option", {value: each}, each + (table.numeric.includes(each) ? "" : " (text)"));
    select.value = table.target;
    select.onchange = () => { target = select.value; features = table.features.filter((each) => each !== target); if (!features.length) features = table.numeric.filter((each) => each !== target).slice(0, 1); lab.request(); };
    html(columns, "span", {}, "from");
    for (const each of table.names.filter((other) => other !== table.target)) {
      const box = html(columns, "label"), check = html(box, "input", {type: "checkbox", value: each});
      check.checked = table.features.includes(each);
      check.onchange = () => {
        const wanted = [...columns.querySelectorAll("input:checked")].map((one) => one.value);
        if (!wanted.length || wanted.length > MOST) { check.checked = !check.checked; return refuse(`Choose 1 to ${MOST} columns to predict from.`); }
        target = table.target; features = wanted; lab.request();
      };
      box.append(each);
    }
  }

  return {
    values: () => ({text, ...(target ? {target} : {}), ...(features ? {features} : {})}),
    received(answer) {
      const before = JSON.stringify(table);
      table = answer.table; target = table.target; features = table.features;
      if (before !== JSON.stringify(table) || !columns.childElementCount) choose();
    },
    draw(answer, t, step) {
      const {svg, width, height} = canvasFor(stage, (w) => Math.min(0.66 * w, 440), "Rows of the file and what is predicted"), p = answer.picture, one = table.features.length === 1;
      svg.replaceChildren();
      const now = between(p.predicted, t), across = one ? p.x : now, spread = (values) => { const low = Math.min(...values), high = Math.max(...values), pad = 0.07 * (high - low) || 1; return [low - pad, high + pad]; };
      const [left, right] = spread(one ? p.x : [...p.y, ...p.best]), [low, high] = spread([...p.y, ...p.best]);
      const x = scale(left, right, MARGIN.left, width - MARGIN.right), y = scale(low, high, height - MARGIN.bottom, MARGIN.top);
      for (const tick of niceTicks(low, high)) { make(svg, "line", {class: "gridline", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(tick), y2: y(tick)}); make(svg, "text", {x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end"}, format(tick)); }
      for (const tick of niceTicks(left, right)) { make(svg, "line", {class: "gridline", x1: x(tick), x2: x(tick), y1: MARGIN.top, y2: height - MARGIN.bottom}); make(svg, "text", {x: x(tick), y: height - MARGIN.bottom + 16, "text-anchor": "middle"}, format(tick)); }
      make(svg, "text", {x: width - MARGIN.right, y: height - 4, "text-anchor": "end"}, one ? table.features[0] : `predicted ${table.target}`);
      make(svg, "text", {x: MARGIN.left + 6, y: MARGIN.top + 12}, table.target);
      if (one) {
        const order = p.x.map((v, i) => i).sort((a, b) => p.x[a] - p.x[b]), ends = [order[0], order[order.length - 1]];
        const line = (values, attributes) => make(svg, "line", {x1: x(p.x[ends[0]]), y1: y(clamp(values[ends[0]], low, high)), x2: x(p.x[ends[1]]), y2: y(clamp(values[ends[1]], low, high)), ...attributes});
        p.predicted.slice(0, Math.floor(t) + 1).forEach((row, k) => line(row, {class: "transformer", "stroke-width": 1.2, opacity: 0.1 + 0.3 * k / p.predicted.length}));
        line(p.best, {class: "reference", "stroke-width": 2.25, "stroke-dasharray": "7 6"});
        line(now, {class: "transformer", "stroke-width": 4});
      } else make(svg, "line", {x1: x(left), y1: y(clamp(left, low, high)), x2: x(right), y2: y(clamp(right, low, high)), class: "reference", "stroke-width": 2, "stroke-dasharray": "7 6"});
      p.y.forEach((value, i) => make(svg, "circle", {cx: clamp(x(across[i]), 0, width), cy: y(value), r: 5, class: one ? "ink" : "fill-transformer", stroke: "var(--card)", "stroke-width": 1.5}));
      const rows = table.rows < table.total ? `first ${table.rows} of ${table.total} rows` : `${table.rows} rows`;
      lab.legend(one ? [["point", "", `${rows} of ${name}`], ["line", "transformer", `the transformer after step ${step}`], ["dashed", "reference", "scikit-learn’s least squares"]] : [["dot", "transformer", `${rows} of ${name}, as predicted after step ${step}`], ["dashed", "reference", "where prediction and truth agree"]]);
    },
  };
}
