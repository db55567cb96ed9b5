// Elements, scales and paths of SVG. Text is always set as text, never as markup.
const NAMESPACE = "http://www.w3.org/2000/svg";

export function make(parent, name, attributes = {}, text = null) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return parent ? parent.appendChild(element) : element;
}

export function html(parent, name, attributes = {}, text = null) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element[key] = value;
    else element.setAttribute(key, value);
  }
  if (text !== null) element.textContent = text;
  return parent ? parent.appendChild(element) : element;
}

/** A fresh drawing of the width that its place has, in pixels, so that text is never scaled. */
export function canvasFor(place, height, label, role = "img") {
  const width = Math.max(240, place.clientWidth), tall = Math.round(height(width));
  let svg = place.querySelector(":scope > svg");
  if (!svg) svg = make(place, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  svg.setAttribute("height", tall);
  svg.setAttribute("role", role);
  svg.setAttribute("aria-label", label);
  return {svg, width, height: tall};
}

export const scale = (from, to, low, high) => (value) => low + (value - from) / (to - from) * (high - low);
export const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** The value of a list between two frames: motion from one step to the next, nothing else. */
export function between(values, t) {
  const low = Math.floor(clamp(t, 0, values.length - 1)), high = Math.min(low + 1, values.length - 1), share = t - low;
  const mix = (a, b) => Array.isArray(a) ? a.map((part, i) => mix(part, b[i])) : a + (b - a) * clamp(share, 0, 1);
  return mix(values[low], values[high]);
}

export function legend(place, entries) {
  place.replaceChildren();
  for (const [kind, style, text] of entries) {
    const item = html(place, "li"), icon = make(item, "svg", {viewBox: "0 0 22 10", "aria-hidden": "true"});
    if (kind === "dot") make(icon, "circle", {cx: 11, cy: 5, r: 4, class: `fill-${style}`});
    else if (kind === "point") make(icon, "circle", {cx: 11, cy: 5, r: 4.5, class: "ink"});
    else if (kind === "ring") make(icon, "circle", {cx: 11, cy: 5, r: 3.5, fill: "none", stroke: "var(--quiet)", "stroke-width": 2.5});
    else if (kind === "cross") make(icon, "path", {d: "M6 4h4V0h2v4h4v2h-4v4h-2V6H6z", fill: "var(--quiet)"});
    else if (kind === "dashed-ring") make(icon, "circle", {cx: 11, cy: 5, r: 4, fill: "none", class: "reference", "stroke-width": 1.75, "stroke-dasharray": "3 2"});
    else if (kind === "swatch-line") make(icon, "rect", {x: 5, y: 1, width: 12, height: 8, rx: 2, fill: "none", stroke: "var(--quiet)", "stroke-width": 1.75});
    else if (kind === "swatch") make(icon, "rect", {x: 4, y: 0, width: 14, height: 10, rx: 2, fill: style});
    else make(icon, "path", {d: "M1 5H21", class: `line ${style}`, "stroke-width": 2.5, ...(kind === "dashed" ? {"stroke-dasharray": "5 4"} : {})});
    item.append(text);
  }
}

/** A number as people read it: three digits, powers of ten where it is small. */
export function format(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(3)));
  return value.toExponential(1).replace("e-", "e−").replace("e+", "e");
}

/** Minus signs of numbers as minus signs. */
export const typeset = (text) => text.replace(/-(?=\d)/g, "−");

/** Normal numbers that are the same on every machine. */
export function randomNumbers(seed) {
  let state = (seed * 2654435761) % 2147483646 + 1;
  const uniform = () => (state = (state * 16807) % 2147483647) / 2147483647;
  uniform(); uniform();
  return {uniform, normal: () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform())};
}
