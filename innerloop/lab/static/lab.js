// The page: scenes, controls, the slider of steps, and one request at a time, of which the latest wins.
import {format, html, legend, typeset} from "./svg.js";
import {AttentionPanel, RegistersPanel, drawCertificate, drawError} from "./panels.js";

const $ = (id) => document.getElementById(id);
const tab = crypto.getRandomValues(new Uint32Array(3)).join("-");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const attention = new AttentionPanel($("attention")), registers = new RegistersPanel($("registers"));
const lab = {
  stage: $("stage"), tools: $("tools"), values: {}, answer: null, scene: null, drawing: null,
  step: 0, shown: 0, playing: false, turn: 0,
  legend: (entries) => legend($("legend"), entries),
  say: (text) => { $("note").textContent = text; },
  /** A place away from the points that are there, for a point that is added by a button. */
  free: (points, reach) => {
    for (let i = 0; ; i++) {
      const angle = 2.4 * i, radius = reach * (0.15 + 0.05 * (i % 12)), place = [radius * Math.cos(angle), radius * Math.sin(angle)].map((v) => Number(v.toFixed(4)));
      if (i > 60 || points.every((p) => Math.hypot(p[0] - place[0], p[1] - place[1]) > 0.35)) return place;
    }
  },
  redraw, redrawPicture, request, aside,
};
let scenes = [], busy = false, again = false, abort = null, slow = null, retry = null, welcome = true;

// Requests. While one is under way, further ones wait, and only the last of them is sent.
async function request() {
  if (busy) { again = true; return; }
  busy = true; again = false; document.body.dataset.state = "busy";
  const scene = lab.scene, turn = ++lab.turn, own = abort = new AbortController();
  slow = setTimeout(() => progress(0, "working"), 200);
  let answer = null, failed = false;
  try {
    const body = JSON.stringify({tab, turn, values: {...lab.values, ...lab.drawing.values()}});
    const response = await fetch(`/run/${scene.name}`, {method: "POST", body, headers: {"content-type": "application/json"}, signal: own.signal});
    answer = await readLines(response, () => lab.scene === scene);
  } catch (error) { failed = error.name !== "AbortError"; }
  if (abort !== own) return;  // another scene was opened meanwhile
  clearTimeout(slow); progress(null);
  busy = false;
  if (failed) offline(); else online();
  if (answer && !answer.superseded) receive(answer);
  document.body.dataset.state = "idle";
  if (again) request();
}

/** Ask for something slow beside the picture: it is not stopped by what is asked after it. */
async function aside(values) {
  const scene = lab.scene;
  try {
    const body = JSON.stringify({tab: `${tab}-aside`, turn: ++lab.turn, values});
    const response = await fetch(`/run/${scene.name}`, {method: "POST", body, headers: {"content-type": "application/json"}});
    const answer = await readLines(response, () => lab.scene === scene);
    return lab.scene === scene && !answer.superseded && !answer.mistake ? answer : null;
  } catch { return null; } finally { if (lab.scene === scene) progress(null); }
}

/** Read an answer: one JSON, or lines of progress with the answer as the last. */
async function readLines(response, wanted) {
  const type = response.headers.get("content-type") ?? "";
  if (!response.ok && !type.startsWith("application/json")) return {mistake: `The lab failed (status ${response.status}). Please report it.`};
  if (!type.startsWith("application/x-ndjson")) return response.json();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", last = null;
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line) continue;
      last = JSON.parse(line);
      if ("progress" in last && wanted()) { progress(last.progress, last.doing); last = null; }
    }
  }
  if (last === null) throw new Error("the answer ended early");
  return last;
}

function receive(answer) {
  if (answer.mistake) {
    $("notice").textContent = answer.mistake; $("notice").hidden = false;
    lab.drawing.refused?.(answer.mistake);
    return;
  }
  $("notice").hidden = true;
  const first = !lab.answer, frames = answer.frames.length;
  lab.answer = answer;
  $("step").max = frames - 1;
  const open = Math.min(answer.opening ?? frames - 1, frames - 1);
  setStep(first || answer.jump ? open : Math.min(lab.step, frames - 1), true);
  $("python").textContent = answer.python;
  $("speed").textContent = `Last answer: ${format(answer.milliseconds)} ms.`;
  lab.drawing.received?.(answer);
  redraw();
  document.body.dataset.turn = lab.turn;
  if (welcome && !calm.matches) play(true);  // the first picture moves by itself, once
  welcome = false;
}

function progress(share, doing = "") {
  const place = $("busy");
  if (share === null) { place.replaceChildren(); return; }
  clearTimeout(slow);
  if (!place.firstChild) { html(place, "span"); html(place, "progress", {max: 1, "aria-label": "Progress"}); }
  place.firstChild.textContent = `${doing || "working"}…`;
  if (share > 0) place.lastChild.value = share; else place.lastChild.removeAttribute("value");
}

function offline() {
  $("notice").textContent = "The lab does not answer. Start it again with “innerloop lab”; this page goes on by itself.";
  $("notice").hidden = false; $("notice").dataset.kind = "offline";
  clearTimeout(retry);
  retry = setTimeout(async () => {
    try { await fetch("/scenes"); scenes.length ? request() : begin(); } catch { offline(); }
  }, 1000);
}

function online() {
  if ($("notice").dataset.kind === "offline") { delete $("notice").dataset.kind; $("notice").hidden = !lab.answer?.mistake; }
}

// Drawing. The picture moves smoothly from step to step; all numbers are those of the step itself.
let animation = 0;
/** The picture alone: what a drag changes before its answer is there. */
function redrawPicture() { if (lab.answer) lab.drawing.draw(lab.answer, lab.shown, lab.step); }

function redraw() {
  const {answer, step} = lab;
  if (!answer) return;
  redrawPicture();
  const frame = answer.frames[step];
  $("step-label").textContent = frame.label; $("layers").textContent = frame.layers;
  $("note").textContent = typeset(frame.note);
  drawError($("error"), $("error-legend"), $("error-title"), answer, step);
  drawCertificate($("certificate"), answer.certificate);
  attention.draw(answer, step);
  registers.draw(answer, step);
}

function setStep(step, jump = false) {
  lab.step = step; $("step").value = step;
  $("step").setAttribute("aria-valuetext", lab.answer.frames[step].label);
  cancelAnimationFrame(animation);
  if (jump || calm.matches) { lab.shown = step; if (!jump) redraw(); return; }
  const from = lab.shown, begin = performance.now(), span = Math.min(320, 220 * Math.abs(step - from));
  const tick = (now) => {
    const share = span ? Math.min(1, (now - begin) / span) : 1, eased = 1 - (1 - share) ** 3;
    lab.shown = from + (step - from) * eased;
    lab.drawing.draw(lab.answer, lab.shown, step);
    if (share < 1) animation = requestAnimationFrame(tick);
  };
  redraw();
  animation = requestAnimationFrame(tick);
}

let timer = null;
function play(on) {
  lab.playing = on; clearTimeout(timer);
  $("play").setAttribute("aria-label", on ? "Pause" : "Play the steps");
  $("note").setAttribute("aria-live", on ? "off" : "polite");
  $("play-icon").setAttribute("d", on ? "M6 4.5h4.5v15H6zM13.5 4.5H18v15h-4.5z" : "M7 4.5v15l13-7.5z");
  if (!on || !lab.answer) return;
  const last = lab.answer.frames.length - 1, pause = Math.max(120, Math.min(600, 6500 / (last + 1)));
  if (lab.step >= last) setStep(0);
  const next = () => {
    if (lab.step >= lab.answer.frames.length - 1) return play(false);
    setStep(lab.step + 1);
    timer = setTimeout(next, pause);
  };
  timer = setTimeout(next, pause);
}
addEventListener("pointerdown", (event) => { if (lab.playing && event.target.closest("#stage")) { play(false); setStep(lab.answer.frames.length - 1, true); redraw(); } }, true);

// Scenes and their controls.
function buildControls(scene) {
  const form = $("controls");
  form.replaceChildren();
  lab.values = {};
  for (const control of scene.controls) {
    lab.values[control.name] = control.default;
    if (control.kind === "choice") buildChoice(form, control); else buildSlider(form, control);
  }
}

function buildChoice(form, control) {
  const group = html(form, "fieldset"), legend = html(group, "legend", {class: "visually-hidden"}, control.label), segments = html(group, "div", {class: "segments"});
  legend.dataset.name = control.name;
  for (const [value, text] of Object.entries(control.options)) {
    const label = html(segments, "label"), input = html(label, "input", {type: "radio", name: control.name, value});
    input.checked = value === control.default;
    input.onchange = () => { lab.values[control.name] = value; change(control.name); };
    html(label, "span", {}, text);
  }
}

function buildSlider(form, control) {
  const label = html(form, "label", {"data-control": control.name}, control.label);
  const input = html(label, "input", {type: "range", name: control.name, min: control.least, max: control.most, step: control.step, value: control.default});
  const output = html(label, "output", {}, format(control.default));
  input.oninput = () => { lab.values[control.name] = +input.value; output.textContent = format(+input.value); change(control.name); };
}

function change(name) { (lab.drawing.controlled?.(name) ?? true) && request(); }

async function open(name) {
  const scene = scenes.find((each) => each.name === name) ?? scenes[0];
  play(false); abort?.abort(); abort = null; again = false; clearTimeout(slow); progress(null);
  cancelAnimationFrame(animation);
  lab.scene = scene; lab.answer = null; lab.turn += 1;
  document.title = `${scene.title} · innerloop lab`;
  for (const link of $("tabs").children) link.dataset.name === scene.name ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  $("tabs").querySelector("[aria-current]").scrollIntoView({block: "nearest", inline: "center"});
  $("title").textContent = scene.title; $("hint").textContent = scene.hint;
  for (const id of ["note", "certificate", "stage", "tools", "legend", "error", "error-legend", "notice", "step-label", "layers"]) $(id).replaceChildren();
  $("notice").hidden = true; $("extra").replaceChildren(); $("extra").hidden = true; lab.extra = $("extra");
  document.body.dataset.scene = scene.name; delete document.body.dataset.turn;
  attention.reset();
  buildControls(scene);
  $("controls").hidden = !scene.controls.length;
  const module = await import(`/static/scenes/${scene.name}.js`);
  if (lab.scene !== scene) return;
  lab.drawing = module.default(lab);
  busy = false;
  request();
}

async function begin() {
  try {
    scenes = (await (await fetch("/scenes")).json()).scenes;
  } catch { return offline(); }
  online();
  $("tabs").replaceChildren();
  for (const scene of scenes) html($("tabs"), "a", {href: `#/${scene.name}`, "data-name": scene.name}, scene.tab);
  open(location.hash.replace(/^#\/?/, ""));
}

$("controls").addEventListener("submit", (event) => event.preventDefault());
$("step").addEventListener("input", () => { play(false); setStep(+$("step").value); });
$("play").addEventListener("click", () => play(!lab.playing));
$("copy").addEventListener("click", async () => { await navigator.clipboard?.writeText($("python").textContent); $("copy").textContent = "Copied"; setTimeout(() => { $("copy").textContent = "Copy"; }, 1500); });
addEventListener("hashchange", () => open(location.hash.replace(/^#\/?/, "")));
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea, button, summary, pre, .point, canvas, a") || event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === " ") { event.preventDefault(); play(!lab.playing); }
  const move = {ArrowRight: 1, ArrowLeft: -1}[event.key];
  if (move && lab.answer) { play(false); setStep(Math.min(lab.answer.frames.length - 1, Math.max(0, lab.step + move))); }
});
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
begin();
