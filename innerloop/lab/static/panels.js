// The parts that every scene has: error chart, attention, registers, certificate, Python.
import {canvasFor, format, html, legend, make, path, scale, typeset} from "./svg.js";

const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
export const decodeFloats = (text) => new Float32Array(decode(text).buffer);
const decodeLevels = (text) => new Int8Array(decode(text).buffer);

/** Errors per frame on a logarithmic axis (or a linear one), with the frame that is shown marked. */
export function drawError(place, list, title, answer, k) {
  const {label, series} = answer.error, sizes = series.flatMap((line) => line.values).filter((value) => value !== null);
  // A range of less than a power of ten or two reads better on a linear axis.
  const linear = answer.error.linear || Math.max(...sizes) < 30 * Math.min(...sizes);
  title.textContent = label[0].toUpperCase() + label.slice(1);
  const {svg, width, height} = canvasFor(place, (w) => Math.min(0.56 * w, 250), `${label}, per step`);
  svg.replaceChildren();
  const value = linear ? (v) => v : (v) => Math.log10(Math.max(v, 1e-16));
  let low = Math.min(...sizes.map(value)), high = Math.max(...sizes.map(value));
  if (linear) { low = Math.min(0, low); high = high > low ? high + 0.06 * (high - low) : low + 1; }
  else { low = Math.max(-16, Math.floor(low)); high = Math.max(Math.ceil(high), low + 1); }
  const last = Math.max(...series.map((line) => line.values.length)) - 1;
  const x = scale(0, Math.max(last, 1), 46, width - 10), y = scale(low, high, height - 24, 8);
  const ticks = linear ? niceTicks(low, high) : powers(low, high);
  for (const tick of ticks) {
    make(svg, "line", {class: "gridline", x1: 46, x2: width - 6, y1: y(tick), y2: y(tick)});
    make(svg, "text", {x: 40, y: y(tick) + 4, "text-anchor": "end"}, linear ? format(tick) : tick === 0 ? "1" : `1e${tick < 0 ? "−" : ""}${Math.abs(tick)}`);
  }
  const every = Math.max(1, Math.ceil(last / Math.max(2, Math.floor(width / 70))));
  for (let i = 0; i <= last; i += every) make(svg, "text", {x: x(i), y: height - 6, "text-anchor": "middle"}, String(i));
  make(svg, "line", {class: "now", x1: x(k), x2: x(k), y1: 6, y2: height - 24});
  for (const line of series) {
    const points = line.values.map((v, i) => [v, i]).filter(([v]) => v !== null).map(([v, i]) => [x(i), y(Math.max(value(v), low)), i]);
    const dots = line.kind === "transformer";
    if (!dots || line.joined) make(svg, "path", {d: path(points), class: `line ${line.kind}`, "stroke-width": line.kind === "reference" ? 2.5 : 1.75, ...(line.kind === "other" ? {"stroke-dasharray": "5 4"} : {})});
    if (dots) points.forEach(([px, py, i]) => make(svg, "circle", {cx: px, cy: py, r: i === k ? 6 : 3.4, class: "fill-transformer", opacity: i <= k ? 1 : 0.3}));
  }
  legend(list, series.map((line) => [line.kind === "transformer" ? "dot" : line.kind === "other" ? "dashed" : "line", line.kind, line.name]));
}

const powers = (low, high) => { const step = Math.max(1, Math.ceil((high - low) / 6)), ticks = []; for (let p = high; p >= low; p -= step) ticks.push(p); return ticks; };
export function niceTicks(low, high) {
  const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((m) => m * power >= rough) * power, ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9; t += step) ticks.push(Number(t.toPrecision(6)));
  return ticks;
}

/** A matrix as coloured cells: one accent for positive numbers, the other for negative ones. */
class Heat {
  constructor(place, named) {
    this.map = html(place, "div", {class: named ? "map named" : "map"});
    if (named) this.names = html(this.map, "div", {class: "names", "aria-hidden": "true"});
    this.canvas = html(this.map, "canvas", {class: "heat", tabindex: "0", role: "img"});
    this.cell = html(this.map, "p", {class: "cell"});
    const legend = html(this.map, "p", {class: "scale"});
    legend.append("negative"); html(legend, "i", {"aria-hidden": "true"}); legend.append("positive");
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.point(Math.floor((event.clientY - box.top) / box.height * this.rows), Math.floor((event.clientX - box.left) / box.width * this.columns));
    });
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("blur", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => {
      const move = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
      if (!move) return;
      event.preventDefault();
      const [row, column] = this.at ?? [0, -move[1]];
      this.point(row + move[0], column + move[1]);
    });
  }

  point(row, column) {
    this.at = row === null || row === undefined ? null : [Math.min(Math.max(row, 0), this.rows - 1), Math.min(Math.max(column, 0), this.columns - 1)];
    this.cell.textContent = this.at ? this.describe(...this.at) : this.rest;
    this.paint();
  }

  show({rows, columns, value, label, describe, rest, height}) {
    Object.assign(this, {rows, columns, value, describe, rest});
    this.canvas.setAttribute("aria-label", label);
    this.canvas.style.height = `${height(this.canvas.clientWidth || 300)}px`;
    if (this.at && (this.at[0] >= rows || this.at[1] >= columns)) this.at = null;
    this.cell.textContent = this.at ? describe(...this.at) : rest;
    this.paint();
  }

  paint() {
    const css = getComputedStyle(document.documentElement), read = (name) => rgb(css.getPropertyValue(name));
    const plus = read("--accent"), minus = read("--reference"), zero = read("--card");
    const {rows, columns, canvas} = this;
    if (!rows) return;
    canvas.width = columns; canvas.height = rows;
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
      const v = this.value(i, j), to = v < 0 ? minus : plus, share = Math.min(1, Math.abs(v)) ** 0.7, place = 4 * (i * columns + j);
      for (let c = 0; c < 3; c++) image.data[place + c] = zero[c] + (to[c] - zero[c]) * share;
      image.data[place + 3] = 255;
    }
    context.putImageData(image, 0, 0);
  }
}

const rgb = (text) => { const hex = text.trim().slice(1); return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16)); };

export class AttentionPanel {
  constructor(place) { this.place = place; this.chosen = null; }

  reset() { this.chosen = null; this.names = null; }

  draw(answer, k) {
    const {heads, tokens} = answer.attention, here = heads.filter((head) => head.frame === k || head.frame === null);
    if (!this.heat) {
      this.choice = html(this.place, "div", {class: "chips"});
      this.formula = html(this.place, "p", {class: "formula"});
      this.heat = new Heat(this.place, false);
    }
    if (!here.length) {
      this.choice.replaceChildren(); this.formula.textContent = "No layer with attention has run yet: press play.";
      this.heat.map.hidden = true;
      return;
    }
    this.heat.map.hidden = false;
    const names = here.map((head) => head.name).join("|");
    if (this.names !== names) {
      this.names = names;
      this.choice.replaceChildren();
      const select = html(this.choice, "select", {"aria-label": "Layer and head"});
      here.forEach((head, i) => html(select, "option", {value: i}, head.name));
      // The head that is shown first: one with a softmax, where there is one, since it chooses.
      this.chosen = Math.min(this.chosen ?? Math.max(0, here.findIndex((head) => head.name.includes("softmax"))), here.length - 1);
      select.value = this.chosen;
      select.onchange = () => { this.chosen = +select.value; this.draw(answer, k); };
      select.disabled = here.length < 2;
    }
    const head = here[this.chosen], visible = answer.attention.visible?.[k] ?? Infinity;
    head.levels ??= decodeLevels(head.data);
    this.formula.textContent = head.note;
    this.heat.show({
      rows: head.rows, columns: head.columns,
      value: (i, j) => (i < visible ? head.levels[i * head.columns + j] / 127 : 0),
      label: `Attention pattern of ${head.name}: ${head.rows} tokens by ${head.columns} keys; arrow keys read cells`,
      describe: (i, j) => `${tokens[i]} takes ${Math.abs(head.levels[i * head.columns + j]) === 127 ? "about " : ""}${format(head.levels[i * head.columns + j] / 127 * head.scale)} of ${tokens[j]}`,
      rest: `Row: the token that reads. Column: the token it reads. Full colour: ${format(head.scale)}.`,
      height: (width) => Math.max(120, Math.min(340, width * Math.min(1, head.rows / head.columns))),
    });
  }
}

export class RegistersPanel {
  constructor(place) { this.place = place; }

  draw(answer, k) {
    const {rows, tokens, data} = answer.registers;
    this.heat ??= new Heat(this.place, true);
    const values = answer.registers.values ??= decodeFloats(data);
    const places = rows.flatMap(({name, size}) => Array.from({length: size}, (_, i) => ({name, i, size})));
    const width = places.length, count = tokens.length, visible = answer.registers.visible?.[k] ?? Infinity, offset = answer.registers.visible ? 0 : k * width * count;
    const most = answer.registers.most ??= places.map(({name}, first) => {
      if (first && places[first - 1].name === name) return 0;
      const sizes = [];
      places.forEach((other, p) => { if (other.name === name) for (let f = 0; f < values.length / (width * count); f++) for (let t = 0; t < count; t++) { const size = Math.abs(values[f * width * count + p * count + t]); if (size) sizes.push(size); } });
      sizes.sort((a, b) => a - b);
      return sizes[Math.floor(0.98 * (sizes.length - 1))] || 1;
    }).map(((last) => (size) => (last = size || last))(1));
    const tall = Math.max(230, Math.min(360, width * 18));
    let start = 0, lastLabel = -20;
    this.heat.names.replaceChildren();
    this.heat.names.style.minWidth = `${Math.max(3, ...rows.map(({name}) => name.length))}ch`;
    for (const {name, size} of rows) {
      const label = html(this.heat.names, "span", {}, name);
      label.style.top = `${(start + size / 2) / width * tall}px`;
      label.hidden = size / width * tall < 11 && rows.length > 9 && start > 0 && start / width * tall - lastLabel < 12;
      if (!label.hidden) lastLabel = (start + size / 2) / width * tall;
      start += size;
    }
    this.heat.show({
      rows: width, columns: count,
      value: (i, j) => (j < visible ? values[offset + i * count + j] / most[i] : 0),
      label: `Registers of ${count} tokens; arrow keys read cells`,
      describe: (i, j) => `${places[i].name}${places[i].size > 1 ? `[${places[i].i}]` : ""} of ${tokens[j]} = ${format(values[offset + i * count + j])}`,
      rest: `A column for each token, a row for each place; colours are scaled per register.`,
      height: () => tall,
    });
  }
}

export function drawCertificate(place, certificate) {
  place.replaceChildren();
  const kind = certificate.holds === null ? "" : certificate.holds ? "holds" : "fails", mark = {holds: "✓ ", fails: "✗ "}[kind] ?? "";
  html(place, "b", {class: kind}, `${mark}Certificate `);
  place.append(typeset(`${certificate.line} ${certificate.here}`));
}
