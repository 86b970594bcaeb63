/** Put the parts together: answers that lie in the page first, so that it is complete before any engine is. */
import { ask, boot, mode, unpack } from "./ask.js";
import { announce, h, scrolls, setKinds, tell } from "./format.js";
import { begin, setDefaults } from "./store.js";
import { setNames } from "./url.js";
import "./cells.js";
import "./growth.js";
import "./products.js";
import "./grid.js";
import "./calculator.js";
import "./ledger.js";
import "./check.js";
import "./oom.js";
import { sections } from "./sections.js";
import { explain } from "./terms.js";

const part = (name) => /** @type {any} */ (document.querySelector(name));

/** Light or dark: the system's choice until the reader makes one. */
function theme() {
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("theme"));
  const dark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
  try {
    const kept = localStorage.getItem("peakmem-theme");
    if (kept) document.documentElement.dataset.theme = kept;
  } catch { /* a page from disk may have no storage */ }
  button.hidden = false;
  button.onclick = () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("peakmem-theme", document.documentElement.dataset.theme); } catch { /* the same */ }
    name();
  };
  name();
}

/** A link within the page moves there and leaves the address alone: it holds the state. */
function within() {
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href^='#']");
    const place = link?.dataset.state ? part("pm-calculator") : link && document.getElementById(link.getAttribute("href").slice(1));
    if (!place) return;
    event.preventDefault();
    if (link.dataset.state) location.hash = link.dataset.state;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    place.scrollIntoView();
    if (place.tabIndex < 0) place.tabIndex = -1;
    place.focus({ preventScroll: true });
  });
}

/** Between two parts the browser may paint and listen. */
const pause = () => new Promise((resolve) => setTimeout(resolve));

async function main() {
  theme();
  within();
  sections();
  unpack();
  const tables = await ask({ ask: "tables" });
  setKinds(tables.kinds);
  explain(tables.words);
  setDefaults(tables.fields);
  setNames(tables);
  for (const code of document.querySelectorAll("section > pre")) scrolls(code, "Commands");
  part("pm-cells").show(await ask({ ask: "cells" }));
  await pause();
  part("pm-growth").show(await ask({ ask: "growth" }));
  await pause();
  const three = await ask({ ask: "three-layers" });
  part("pm-products").show(three);
  await pause();
  part("pm-grid").show(three);
  await pause();
  part("pm-ledger").show(tables);
  part("pm-levers").show();
  part("pm-oom").show();
  part("pm-check").show();
  await pause();
  part("pm-calculator").show(tables);
  await pause();
  begin((text) => tell("link", text));
  addEventListener("engine", () => { tell("engine", ""); announce("The calculator is live."); });
  addEventListener("engine-failed", (event) => tell("engine", `The calculator did not start: ${/** @type {any} */ (event).detail}`));
  if (mode === "live") tell("engine", "Loading the calculator (6 MB, once)…");
  document.documentElement.classList.add("ready");
  boot();
}
main().catch((error) => {
  document.querySelector("main")?.prepend(h("p", { class: "bad", role: "alert" }, `The page could not start: ${error.message}`));
});
