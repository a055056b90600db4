"use strict";

// Dark or light: the system's choice until the reader makes one.
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-switch]")) return;
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (root.dataset.theme || system) === "dark" ? "light" : "dark";
  root.dataset.theme = next;
  try { localStorage.setItem("equipoise-theme", next); } catch { /* kept for this page only */ }
  for (const place of document.querySelectorAll("[data-drawn]")) drawChart(place);
});

// Only what was chosen goes into the address.
document.addEventListener("htmx:configRequest", (event) => {
  const given = event.detail.parameters;
  for (const name of Object.keys(given)) if (given[name] === "") delete given[name];
});

// Another task has other scores, strata and errors: its page is opened anew.
for (const kind of ["input", "change"]) {
  document.addEventListener(kind, (event) => {
    if (!event.target.matches("[data-anew]")) return;
    event.stopPropagation();
    const { name, value } = event.target;
    if (kind === "change") location.search = new URLSearchParams({ [name]: value });
  }, true);
}

// Keys: / searches, n and p turn pages, j and k walk through rows.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const find = { "/": "[data-find]", n: "[data-next]", p: "[data-previous]" }[event.key];
  const target = find && document.querySelector(find);
  if (target) {
    event.preventDefault();
    if (event.key === "/") target.focus();
    else target.click();
    return;
  }
  if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll("main tbody a[href], main details.unit > summary")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const to = event.key === "j" ? Math.min(at + 1, rows.length - 1) : Math.max(at - 1, 0);
    rows[to].focus();
  }
});

// A running trial tells how far it is; the browser asks again by itself when the line drops.
for (const place of document.querySelectorAll("[data-live]")) {
  const stream = new EventSource(place.dataset.live);
  const lost = document.querySelector("[data-lost]");
  const within = () => [...place.querySelectorAll("[tabindex]")];
  stream.addEventListener("open", () => { lost.hidden = true; });
  stream.addEventListener("error", () => {
    lost.hidden = false;
    lost.textContent = stream.readyState === EventSource.CLOSED
      ? "The viewer no longer answers here: open the address that `equipoise view` printed last."
      : "The viewer does not answer; what is shown stands still until it does.";
  });
  stream.addEventListener("progress", (event) => {
    const before = within();
    const at = before.indexOf(document.activeElement);
    place.innerHTML = event.data;
    const after = within();
    for (const [i, each] of after.entries()) each.scrollLeft = before[i]?.scrollLeft ?? 0;
    after[at]?.focus({ preventScroll: true });
  });
  stream.addEventListener("ended", () => { stream.close(); location.reload(); });
  addEventListener("pagehide", () => stream.close());
}

// Mathematics between $$, \( \) and \[ \]; what KaTeX cannot read stays as it was written.
function typeset(root) {
  if (!window.renderMathInElement) return;
  for (const place of root.querySelectorAll("[data-math]")) {
    renderMathInElement(place, {
      delimiters: [
        { left: "$$", right: "$$", display: true },
        { left: "\\[", right: "\\]", display: true },
        { left: "\\(", right: "\\)", display: false },
      ],
      throwOnError: false, errorColor: "var(--bad)", trust: false, strict: "ignore", maxSize: 20,
      maxExpand: 200,
    });
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0; // keys can scroll it
  }
}
addEventListener("DOMContentLoaded", () => typeset(document));
document.addEventListener("htmx:load", (event) => typeset(event.detail.elt));

// Charts with values to point at: Vega-Lite is fetched from this server when one comes into view.
const vega = { scripts: null };
function fetchVega() {
  vega.scripts ??= ["vega", "vega-lite", "vega-embed"].reduce(
    (before, name) => before.then(() => new Promise((done, fail) => {
      const script = document.createElement("script");
      script.src = document.querySelector(`meta[name="${name}"]`).content;
      script.onload = done;
      script.onerror = fail;
      document.head.append(script);
    })), Promise.resolve());
  return vega.scripts;
}
async function drawChart(place) {
  const answer = await fetch(place.dataset.chart);
  if (!answer.ok) return;
  const { spec, light, dark } = await answer.json();
  await fetchVega();
  const style = document.documentElement.dataset.theme
    || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const held = document.createElement("div");
  place.replaceChildren(held);
  place.dataset.drawn = "";
  await vegaEmbed(held, spec, {
    ast: true, actions: false, defaultStyle: false, renderer: "canvas", mode: "vega-lite",
    config: style === "dark" ? dark : light,
    tooltip: { disableDefaultStyle: true },
    loader: { load: () => Promise.reject(new Error("a chart loads nothing")) },
  });
}
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    seen.unobserve(entry.target);
    drawChart(entry.target);
  }
});
function watchCharts(root) {
  for (const place of root.querySelectorAll("[data-chart]")) seen.observe(place);
}
addEventListener("DOMContentLoaded", () => watchCharts(document));
document.addEventListener("htmx:load", (event) => watchCharts(event.detail.elt));
