const root = document.documentElement;
const claims = [...document.querySelectorAll(".claim")];
const search = document.getElementById("search"), source = document.getElementById("source");
const chips = [...document.querySelectorAll(".chip")];
let verdict = "", words;

// Filters and search: a claim matches if its text contains every word.
function filter() {
  words ??= claims.map((claim) => (claim.id + " " + claim.textContent).toLowerCase());
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  claims.forEach((claim, k) => {
    const match = (!verdict || claim.dataset.verdict === verdict)
      && (!source.value || claim.parentElement.dataset.source === source.value)
            && terms.every((word) => words[k].includes(word));
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

// The figures and formulas of cards are one compressed block. It is inflated when the page has loaded.
// Each part is inserted when the card around it is opened, or before the page is printed.
let parts = null;
async function unpack() {
  const bytes = Uint8Array.from(atob(document.getElementById("packed").dataset.parts), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  parts = (await new Response(stream).text()).split("\n");
}
function fill(place) {
  for (const formula of place.querySelectorAll("[data-m]")) {
    formula.innerHTML = parts[formula.dataset.m];
    formula.removeAttribute("data-m");
  }
  for (const figure of place.querySelectorAll("[data-svg]")) {
    const drawn = new DOMParser().parseFromString(parts[figure.dataset.svg], "image/svg+xml").documentElement;
    figure.removeAttribute("data-svg");
    figure.replaceChildren(document.importNode(drawn, true));
  }
}
// The cards contain the findings; a list that is opened collects copies of them.
function gather(list) {
  const kind = list.dataset.gather;
  list.removeAttribute("data-gather");
  for (const claim of claims) {
    for (const part of claim.querySelectorAll(`[data-kind="${kind}"]`)) {
      const finding = document.createElement("article"), link = document.createElement("a"), title = document.createElement("p");
      finding.className = "finding";
      title.className = "claimed";
      title.append(...claim.querySelector(".what b").cloneNode(true).childNodes);
      link.className = "subject";
      link.href = "#" + claim.id;
      link.textContent = `${claim.parentElement.dataset.short} · ${claim.querySelector(".where").textContent}`;
      finding.append(link, title, part.cloneNode(true));
      list.append(finding);
    }
  }
}
const later = window.requestIdleCallback ?? ((task) => setTimeout(task, 50));
const ready = new Promise((resolve) => addEventListener("load", () => later(resolve))).then(unpack);
ready.then(() => {
  for (const box of document.querySelectorAll(".plot")) if (!box.closest("details:not([open])")) fill(box);
  root.dataset.filled = "true";
});
function show(part) {
  part.querySelectorAll("[data-gather]").forEach(gather);
  if (parts) fill(part); else ready.then(() => fill(part));
}
for (const part of document.querySelectorAll("details")) {
  part.addEventListener("toggle", () => { if (part.open) show(part); });
}
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details")) part.open = true;
  show(document);
});

// Links scroll to a position below the bar, whose height depends on the width of the window.
const bar = document.querySelector(".controls");
const measure = () => root.style.setProperty("--bar", bar.offsetHeight + "px");
addEventListener("resize", measure);
measure();

// A link into a card opens the card and all sections around it.
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
try { kept = localStorage.getItem("innerloop-theme"); } catch { /* private windows store nothing */ }
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
theme.hidden = false;
theme.addEventListener("click", () => {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("innerloop-theme", root.dataset.theme); } catch { /* as above */ }
});
