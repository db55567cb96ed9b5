const root = document.documentElement;
const claims = [...document.querySelectorAll(".claim")];
const search = document.getElementById("search"), source = document.getElementById("source");
const chips = [...document.querySelectorAll(".chip")];
let verdict = "", words;

// Filters and search: every word must be in the claim, wherever.
function filter() {
  words ??= claims.map((claim) => (claim.id + " " + claim.textContent).toLowerCase());
  const asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  claims.forEach((claim, k) => {
    const match = (!verdict || claim.dataset.verdict === verdict)
      && (!source.value || claim.dataset.source === source.value)
      && asked.every((word) => words[k].includes(word));
    claim.hidden = !match;
    shown += match;
  });
  for (const group of document.querySelectorAll(".source")) {
    group.hidden = !group.querySelector(".claim:not([hidden])");
  }
  document.getElementById("count").textContent = shown + " of " + claims.length + " claims";
  document.getElementById("none").hidden = shown > 0;
}
search.addEventListener("input", filter);
source.addEventListener("input", filter);
for (const chip of chips) {
  chip.addEventListener("click", () => {
    verdict = chip.dataset.verdict;
    for (const other of chips) other.setAttribute("aria-pressed", String(other === chip));
    filter();
  });
}

// Figures are inflated when their card opens, and the others one by one while nothing else is done.
async function inflate(place) {
  const packed = place.dataset.svg;
  if (!packed) return;
  place.removeAttribute("data-svg");
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const text = await new Response(stream).text();
  const drawn = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  place.replaceChildren(document.importNode(drawn, true));
}
// Errata and what is beyond stand in the cards; a list that opens gathers copies of them.
function gather(list) {
  const kind = list.dataset.gather;
  list.removeAttribute("data-gather");
  for (const claim of claims) {
    for (const part of claim.querySelectorAll(`[data-kind="${kind}"]`)) {
      const finding = document.createElement("article"), link = document.createElement("a");
      finding.className = "finding";
      link.className = "subject";
      link.href = "#" + claim.id;
      link.textContent = claim.dataset.subject;
      finding.append(link, part.cloneNode(true));
      list.append(finding);
    }
  }
}
const fill = (part) => Promise.all([...part.querySelectorAll("[data-svg]")].map(inflate));
function show(part) {
  fill(part);
  part.querySelectorAll("[data-gather]").forEach(gather);
}
for (const part of document.querySelectorAll("details")) {
  part.addEventListener("toggle", () => { if (part.open) show(part); });
}
const later = window.requestIdleCallback ?? ((task) => setTimeout(task, 50));
function fillOne() {
  const place = document.querySelector("[data-svg]");
  if (!place) { root.dataset.filled = "true"; return; }
  inflate(place).then(() => later(fillOne));
}
addEventListener("load", () => later(fillOne));
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) {
    part.open = true;
    show(part);
  }
});

// Links land below the bar, however high it is at this width.
const bar = document.querySelector(".controls");
const measure = () => root.style.setProperty("--bar", bar.offsetHeight + "px");
addEventListener("resize", measure);
measure();

// A link into a card opens it, and whatever it lies in.
function open() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) {
    if (part.matches("details")) part.open = true;
    if (part.hidden) { search.value = source.value = ""; chips[0].click(); }
  }
  target.scrollIntoView();
}
addEventListener("hashchange", open);
open();

const theme = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
let kept = null;
try { kept = localStorage.getItem("innerloop-theme"); } catch { /* private windows keep nothing */ }
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
theme.hidden = false;
theme.addEventListener("click", () => {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("innerloop-theme", root.dataset.theme); } catch { /* as above */ }
});
