/** Put the parts together: answers that lie in the page first, so that it is complete before any engine is. */
import { ask, boot, mode, unpack } from "./ask.js";
import { announce, h, setKinds } from "./format.js";
import { begin, setDefaults } from "./store.js";
import { setNames } from "./url.js";
import "./cells.js";
import "./growth.js";
import "./products.js";
import "./grid.js";
import "./calculator.js";
import "./ledger.js";

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

async function main() {
  theme();
  unpack();
  const tables = await ask({ ask: "tables" });
  setKinds(tables.kinds);
  setDefaults(tables.fields);
  setNames(tables);
  part("pm-cells").show(await ask({ ask: "cells" }));
  part("pm-growth").show(await ask({ ask: "growth" }));
  const three = await ask({ ask: "three-layers" });
  part("pm-products").show(three);
  part("pm-grid").show(three);
  part("pm-ledger").show(tables);
  part("pm-levers").show();
  part("pm-check").show();
  part("pm-calculator").show(tables);
  const unknown = begin();
  if (unknown.length) announce(`The link says things that are unknown here: ${unknown.join(", ")}`);
  addEventListener("engine", () => announce("The calculator is live."));
  addEventListener("engine-failed", (event) => announce(`The calculator did not start: ${/** @type {any} */ (event).detail}`));
  if (mode === "live") announce("Loading the calculator (6 MB, once)…");
  document.documentElement.classList.add("ready");
  boot();
}
main().catch((error) => {
  document.querySelector("main")?.prepend(h("p", { class: "bad", role: "alert" }, `The page could not start: ${error.message}`));
});
