/** Numbers as every view of peakmem prints them, and small builders of elements. */

/** A number with so many digits after the point. Making a format takes as long as a chart, so each is made once. */
const formats = new Map();
export function fixed(number, digits) {
  if (!formats.has(digits)) formats.set(digits, new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  return formats.get(digits).format(number);
}

/** Bytes as GiB (2^30), small ones as MiB or KiB, large as TiB: as quantity.py writes them. */
export function gib(size, digits = 2) {
  for (const [power, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(size) >= power) {
      return `${fixed(size / power, digits)} ${unit}`;
    }
  }
  return `${fixed(size, 0)} B`;
}

/** Bytes in GiB without the unit, for axes and tables that say it once. */
export const bare = (size, digits = 2) => fixed(size / 2 ** 30, digits);

export const signed = (size) => (size > 0 ? "+" : size < 0 ? "−" : "") + gib(Math.abs(size));

export const count = (n) => fixed(Number(n), 0);

/** 8.03 billion: parameters as people say them. */
export function people(n) {
  for (const [power, unit] of [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"]]) {
    if (n >= 0.9995 * power) // what rounds to 1,000 of one is 1.00 of the next
      return (n / power).toPrecision(3) + unit;
  }
  return count(n);
}

/** An element; children are strings or nodes, null is left out. */
export function h(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value; // an attribute would be refused by the server's policy
    else if (name === "value" || name === "checked" || name === "selected") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text as it may stand in SVG that is written as text. */
export const safe = (text) => String(text).replace(/[&<>"]/g, (c) => ESCAPES[c]);

let titles = {};
export function setKinds(kinds) {
  titles = kinds;
}
export const kinds = () => Object.keys(titles);
export const title = (kind) => titles[kind]?.title ?? kind.replace("_", " ");
export const letter = (kind) => titles[kind]?.letter ?? "?";

/** The square that a kind wears everywhere: its colour with its letter. */
export const swatch = (kind) => h("span", { class: `s ${kind}`, "aria-hidden": "true" }, letter(kind));

/** What the letters in these formulas stand for. */
export function letters(legend, formulas) {
  const used = new Set(formulas.join(" ").match(/[A-Za-z]/g));
  return h("p", { class: "small" }, "Letters: ", Object.entries(legend).filter(([letter]) => used.has(letter)).map(([letter, text], i) => [i ? ", " : "", h("b", {}, letter), ` ${text}`]), ".");
}

/** What is wider or higher than its box can be reached by keyboard; what is not is no stop on the way. */
export function fit(box) {
  const over = box.scrollWidth > box.clientWidth + 1 || box.scrollHeight > box.clientHeight + 1;
  if (over) Object.entries({ tabindex: "0", role: "region", "aria-label": box.dataset.region }).forEach(([name, value]) => box.setAttribute(name, value));
  else for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
}
const boxes = new ResizeObserver((entries) => entries.forEach((one) => fit(one.target)));
const contents = new MutationObserver((changes) => new Set(changes.map((one) => one.target.closest("[data-region]"))).forEach((box) => box && fit(box)));
export function scrolls(element, name) {
  element.dataset.region = name;
  boxes.observe(element);
  contents.observe(element, { childList: true, subtree: true });
  return element;
}

/** What stands in a control is wrong, or is not. */
export const invalid = (control, wrong) => (wrong ? control.setAttribute("aria-invalid", "true") : control.removeAttribute("aria-invalid"));

/** Seen while the settings cannot be counted: what stands below is not of them. */
export const old = () => h("p", { class: "old small" }, "Numbers of before: the settings as they are now cannot be counted here.");

/** Swatch and name. */
export const named = (kind) => h("span", { class: "named" }, swatch(kind), " ", title(kind));

const WORDS = {
  start: "at the start of the step", forward: "in forward", backward: "in backward", optimizer: "in the optimizer step",
  step: "in the optimizer step", clear: "when gradients are cleared", load: "after loading", prefill: "in prefill",
  F1: "in the first third of forward", F2: "in the second third of forward", F3: "in the last third of forward",
  B3: "in the first third of backward", B2: "in the second third of backward", B1: "in the last third of backward",
  P1: "in the first third of the prompt", P2: "in the second third of the prompt", P3: "in the last third of the prompt",
  "first decode": "at the first generated token", "last decode": "at the last generated token",
};

/** `backward/layers.31/mlp` as "in backward, at layers.31 mlp". */
export function moment(name) {
  const [phase, ...place] = name.split("/");
  const base = WORDS[phase] ?? WORDS[phase.split(".")[0]] ?? phase;
  if (!place.length) return base;
  return `${base}, at ${place[0] === "loss" ? "the loss" : place.join(" ")}`;
}

/** Short names of the nine moments, for people. */
export const momentTitle = (name) => (WORDS[name] ?? name).replace(/^(in|at|after) /, "").replace(/^the /, "");

/** Say something once to a screen reader. */
export function announce(text) {
  const line = document.getElementById("spoken");
  if (line && line.textContent !== text) line.textContent = text;
}

const told = {};
/** The same, and in sight: what the page itself has to say. What is said about one thing stays beside the other. */
export function tell(about, text) {
  if (text) announce(text);
  told[about] = text;
  const line = document.getElementById("status");
  if (line) line.textContent = Object.values(told).filter(Boolean).join(" ");
}
