// Numbers side by side, each of which can be dragged up and down, or moved by the arrow keys.
import {canvasFor, clamp, make, scale} from "./svg.js";
import {niceTicks} from "./panels.js";

const LEFT = 34, BOTTOM = 22, TOP = 10;

export class Columns {
  /** values: numbers that are changed in place; name(i) is what a column is called, tick(i) its label. */
  constructor(lab, {values, reach, step, label, name, tick, changed, count = values.length}) {
    Object.assign(this, {lab, values, reach, step, label, name, tick, changed, count});
  }

  begin() {
    const {svg, width, height} = canvasFor(this.lab.stage, (w) => Math.min(0.62 * w, 400), this.label, "group");
    this.wide = (width - LEFT - 6) / this.count;
    this.x = (i) => LEFT + (i + 0.5) * this.wide;
    this.y = scale(-this.reach, this.reach, height - BOTTOM, TOP);
    this.height = height;
    if (this.svg !== svg) { this.svg = svg; svg.replaceChildren(); this.base = make(svg, "g", {"aria-hidden": "true"}); this.grips = make(svg, "g"); this.over = make(svg, "g", {"aria-hidden": "true", "pointer-events": "none"}); this.listen(); }
    this.base.replaceChildren(); this.over.replaceChildren();
    for (const tick of niceTicks(-this.reach, this.reach)) {
      make(this.base, "line", {class: tick ? "gridline" : "axis", x1: LEFT, x2: width - 6, y1: this.y(tick), y2: this.y(tick)});
      make(this.base, "text", {x: LEFT - 8, y: this.y(tick) + 4, "text-anchor": "end"}, String(tick).replace("-", "−"));
    }
    for (let i = 0; i < this.count; i++) { const text = this.tick(i); if (text) make(this.base, "text", {x: this.x(i), y: height - 5, "text-anchor": "middle"}, text); }
    this.drawGrips();
    return this.over;
  }

  drawGrips() {
    while (this.grips.childElementCount < this.values.length) {
      const grip = make(this.grips, "g", {class: "column", tabindex: "0", role: "slider", "data-index": this.grips.childElementCount});
      make(grip, "rect", {class: "band", rx: 4});
      make(grip, "rect", {class: "truth", rx: 3, fill: "none", stroke: "var(--quiet)", "stroke-width": 1.75});
    }
    this.values.forEach((value, i) => {
      const grip = this.grips.children[i], [band, bar] = grip.children, half = Math.min(13, this.wide * 0.42), top = Math.min(this.y(value), this.y(0)), tall = Math.max(3, Math.abs(this.y(value) - this.y(0)));
      for (const [key, part] of Object.entries({x: this.x(i) - this.wide / 2, width: this.wide, y: TOP, height: this.height - TOP - BOTTOM})) band.setAttribute(key, part);
      for (const [key, part] of Object.entries({x: this.x(i) - half, width: 2 * half, y: value === 0 ? top - 1.5 : top, height: tall})) bar.setAttribute(key, part);
      grip.setAttribute("aria-label", this.name(i));
      grip.setAttribute("aria-valuemin", -this.reach); grip.setAttribute("aria-valuemax", this.reach); grip.setAttribute("aria-valuenow", value);
    });
  }

  set(i, value) {
    const rounded = Math.abs(value) < 0.6 * this.step ? 0 : Number(clamp(value, -this.reach, this.reach).toFixed(3));
    if (rounded !== this.values[i]) { this.values[i] = rounded; this.changed(i); }
  }

  listen() {
    let held = null;
    const locate = (event) => { const box = this.svg.getBoundingClientRect(), y = (event.clientY - box.top) * this.height / box.height; return this.reach - (y - TOP) / (this.height - BOTTOM - TOP) * 2 * this.reach; };
    this.grips.addEventListener("pointerdown", (event) => { const grip = event.target.closest(".column"); if (!grip) return; held = +grip.dataset.index; this.svg.setPointerCapture(event.pointerId); this.set(held, locate(event)); });
    this.svg.addEventListener("pointermove", (event) => { if (held !== null) this.set(held, locate(event)); });
    for (const kind of ["pointerup", "pointercancel"]) this.svg.addEventListener(kind, () => { held = null; });
    this.grips.addEventListener("keydown", (event) => {
      const move = {ArrowUp: 1, ArrowDown: -1, ArrowRight: 1, ArrowLeft: -1, PageUp: 5, PageDown: -5}[event.key], i = +event.target.dataset.index;
      if (move) { event.preventDefault(); this.set(i, this.values[i] + move * this.step); }
      if (event.key === "Home" || event.key === "Delete") { event.preventDefault(); this.set(i, 0); }
    });
  }
}
