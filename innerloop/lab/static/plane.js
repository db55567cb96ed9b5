// Points in the plane that can be dragged, added and removed: by mouse, touch and keyboard.
import {canvasFor, clamp, html, make, scale} from "./svg.js";

const MARGIN = 14, ASPECT = 0.7, TWICE = 400;

export class Plane {
  /** groups: {name: {points, least, most, noun, color(i), shape}}; the first is what a click adds to. */
  constructor(lab, {reach, groups, label, changed, equal = false}) {
    Object.assign(this, {lab, reach, groups, label, changed, equal, selected: null, held: null});
    this.high = equal ? ASPECT * reach : reach;
    this.first = Object.keys(groups)[0];
  }

  /** Begin a drawing: grid and axes; returns the layer for what lies under the points. */
  begin(height = (width) => this.equal ? ASPECT * (width - 2 * MARGIN) + 2 * MARGIN : Math.min(0.7 * width, 470)) {
    const {svg, width, height: tall} = canvasFor(this.lab.stage, height, this.label, "group");
    if (this.svg !== svg) this.listen(svg);
    const wide = this.reach, high = this.high;
    this.x = scale(-wide, wide, MARGIN, width - MARGIN);
    this.y = scale(-high, high, tall - MARGIN, MARGIN);
    this.back = scale(MARGIN, width - MARGIN, -wide, wide);
    this.up = scale(tall - MARGIN, MARGIN, -high, high);
    this.width = width; this.height = tall;
    if (!this.under || this.under.parentNode !== svg) {
      svg.replaceChildren();
      this.base = make(svg, "g", {"aria-hidden": "true"});
      this.under = make(svg, "g", {"aria-hidden": "true"});
      this.over = make(svg, "g");
      this.size = "";
    }
    if (this.size !== `${width}×${tall}`) {
      this.size = `${width}×${tall}`;
      this.base.replaceChildren();
      for (let g = -Math.floor(wide); g <= wide; g++) {
        make(this.base, "line", {class: g ? "gridline" : "axis", x1: this.x(g), x2: this.x(g), y1: 0, y2: tall});
        if (Math.abs(g) <= high) make(this.base, "line", {class: g ? "gridline" : "axis", x1: 0, x2: width, y1: this.y(g), y2: this.y(g)});
      }
    }
    this.under.replaceChildren();
    return this.under;
  }

  /** Draw the points over everything; elements stay, so that focus and a drag are kept. */
  finish() {
    const wanted = Object.entries(this.groups).flatMap(([name, group]) => group.points.map((point, i) => ({name, group, point, i})));
    while (this.over.childElementCount > wanted.length) this.over.lastChild.remove();
    while (this.over.childElementCount < wanted.length) {
      const element = make(this.over, "g", {class: "point", tabindex: "0", role: "button"});
      make(element, "circle", {class: "hit", r: 20});
      make(element, "path", {class: "dot"});
    }
    wanted.forEach(({name, group, point: [x, y], i}, place) => {
      const element = this.over.children[place];
      element.dataset.group = name; element.dataset.index = i;
      element.setAttribute("transform", `translate(${this.x(x).toFixed(2)} ${this.y(y).toFixed(2)})`);
      element.setAttribute("aria-label", `${group.noun} ${i + 1} at ${x.toFixed(2)}, ${y.toFixed(2)}: arrow keys move it${group.points.length > group.least && !group.fixed ? ", Delete removes it" : ""}`);
      element.classList.toggle("selected", !!this.selected && this.selected.name === name && this.selected.i === i);
      const mark = element.lastChild;
      mark.setAttribute("d", group.shape === "cross" ? "M-9-3h6v-6h6v6h6v6h-6v6h-6v-6h-6z" : "M0-6.5a6.5 6.5 0 1 1-.01 0z");
      mark.setAttribute("fill", group.color ? group.color(i) : "var(--ink)");
    });
  }

  locate(event) {
    const box = this.svg.getBoundingClientRect();
    const x = this.back((event.clientX - box.left) * this.width / box.width), y = this.up((event.clientY - box.top) * this.height / box.height);
    return this.inside([x, y]);
  }

  inside([x, y]) {
    return [clamp(x, -this.reach, this.reach), clamp(y, -this.high, this.high)].map((part) => Number(part.toFixed(4)));
  }

  grip(event) {
    const element = event.target.closest?.(".point");
    return element ? {name: element.dataset.group, i: +element.dataset.index, element} : null;
  }

  listen(svg) {
    this.svg = svg;
    let start = null, tap = {time: -1e9};
    svg.addEventListener("pointerdown", (event) => {
      const grip = this.grip(event);
      start = {x: event.clientX, y: event.clientY, moved: false, grip};
      if (!grip) return;
      this.held = this.selected = grip;
      grip.element.classList.add("held");
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (start && Math.hypot(event.clientX - start.x, event.clientY - start.y) > 4) start.moved = true;
      if (!this.held || !start?.moved) return;
      this.groups[this.held.name].points[this.held.i] = this.locate(event);
      this.changed();
    });
    const release = (event) => {
      this.held?.element.classList.remove("held");
      const still = event.type === "pointerup" && start && !start.moved, grip = start?.grip;
      this.held = start = null;
      if (still && !grip) this.add(this.locate(event));
      if (still && grip) {
        // A second tap on the same point removes it; a captured pointer has no double click of its own.
        const again = event.timeStamp - tap.time < TWICE && tap.name === grip.name && tap.i === grip.i;
        tap = {time: again ? -1e9 : event.timeStamp, name: grip.name, i: grip.i};
        if (again) return this.remove(grip);
      }
      this.lab.redrawPicture();
    };
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("focusin", (event) => { const grip = this.grip(event); if (grip) { this.selected = grip; this.lab.redrawPicture(); } });
    svg.addEventListener("keydown", (event) => {
      const grip = this.grip(event), step = event.shiftKey ? 0.5 : 0.1;
      const move = {ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step]}[event.key];
      if (!grip || !(move || event.key === "Delete" || event.key === "Backspace")) return;
      event.preventDefault();
      if (!move) return this.remove(grip);
      const points = this.groups[grip.name].points;
      points[grip.i] = this.inside(points[grip.i].map((part, j) => part + move[j]));
      this.changed();
    });
  }

  add(point) {
    const group = this.groups[this.first];
    if (group.fixed) return;
    if (group.points.length >= group.most) return this.lab.say(`${group.most} points are the most that these weights were built for.`);
    group.points.push(point);
    this.selected = {name: this.first, i: group.points.length - 1};
    this.changed();
  }

  remove({name, i} = this.selected ?? {name: this.first, i: this.groups[this.first].points.length - 1}) {
    const group = this.groups[name];
    if (group.fixed || group.points.length <= group.least) return this.lab.say(`At least ${group.least} are needed.`);
    group.points.splice(i, 1);
    this.selected = null;
    this.changed();
  }

  /** Buttons for those who cannot click into the picture. */
  buttons(place, draw) {
    html(place, "button", {type: "button", onclick: () => this.add(this.lab.free([...this.groups[this.first].points], this.high))}, "Add a point");
    html(place, "button", {type: "button", onclick: () => this.remove()}, "Remove a point");
    if (draw) html(place, "button", {type: "button", onclick: draw}, "New points");
  }
}
