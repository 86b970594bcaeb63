/** One state, one event for each thing that changes. The engine is asked from here and from nowhere else. */
import { ask, has, key, live, slow } from "./ask.js";
import { toHash, fromHash } from "./url.js";

export const start = { model: "llama-3.1-8b", config: null, sizes: {}, settings: { gpu: "H100 SXM 80GB" } };
export const state = { ...structuredClone(start), moment: -1, answer: null, of: "", room: null, error: "", pinned: null, measured: null };
export const events = new EventTarget();

export const on = (name, what) => events.addEventListener(name, what);
export const tellAll = (name) => emit(name);
const emit = (name) => events.dispatchEvent(new Event(name));

/** The question that the calculator's state is. */
export function request(more = {}) {
  const made = { model: state.model, settings: sorted(state.settings) };
  if (state.config) made.config = state.config;
  if (Object.keys(state.sizes).length) made.sizes = sorted(state.sizes);
  return { ...made, ...more };
}

const sorted = (object) => Object.fromEntries(Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1)));

let defaults = {};
export function setDefaults(fields) {
  defaults = Object.fromEntries(fields.map((row) => [row.name, String(row.default)]));
}

/** A setting as it is, also where nobody set it. */
export const setting = (name) => state.settings[name] ?? defaults[name];

/** Change the model, sizes or settings; null takes a setting back to its default. */
export function change({ model, config, sizes, settings }, { push = false } = {}) {
  if (model !== undefined && (model !== state.model || config)) {
    Object.assign(state, { model, config: config ?? null, sizes: {} });
  }
  for (const [part, given] of [["sizes", sizes], ["settings", settings]]) {
    for (const [name, value] of Object.entries(given ?? {})) {
      const usual = part === "settings" && name !== "gpu" && String(value) === defaults[name];
      if (value === null || value === "" || usual) delete state[part][name];
      else state[part][name] = value;
    }
  }
  clearTimeout(writing);
  if (push) history.pushState(...entry());
  else writing = setTimeout(address, 200); // browsers refuse more than some writes a second
  emit("change");
  return refresh();
}

let writing = 0;
function entry() {
  const { hash, beside } = toHash(state);
  return [beside, "", hash];
}
/** The link to what is shown, in the address line, too. */
export function address() {
  clearTimeout(writing);
  history.replaceState(...entry());
  return location.href;
}
/** Where the link does not hold all of the state: a word about it. */
export const missed = () => (toHash(state).beside ? `${state.model} is too long for a link. This browser keeps it; whoever else opens the link needs the file.` : "");

/** Whether the numbers are those of the settings that are shown. */
export const current = () => state.answer !== null && state.of === key(request());

/** Replace everything, as a link does. */
export function load(given) {
  Object.assign(state, structuredClone(start), given);
  emit("change");
  return refresh();
}

function failed() {
  delete document.documentElement.dataset.busy;
  emit("error");
}

let latest = 0;
export async function refresh() {
  const turn = ++latest;
  const began = performance.now();
  document.documentElement.dataset.busy = "";
  const whole = request({ lines: 0, allocator: false });
  const first = live() && !has(whole) ? request({ ask: "chart" }) : whole;
  if (!taken(await ask(first, "estimate"), turn)) return;
  state.of = key(request());
  state.room = null;
  emit("answer");
  performance.measure("answer", { start: began });
  afterPaint(async () => {
    if (turn !== latest) return;
    if (first !== whole && !taken(await ask(whole, "estimate"), turn)) return;
    emit("details");
    delete document.documentElement.dataset.busy;
    later();
  });
}

/** Keep an answer, or say what is wrong; false where there is nothing to go on with. */
function taken(answer, turn) {
  if (turn !== latest || answer === undefined) return false;
  state.error = answer === null ? "unanswered" : answer.error ?? "";
  if (state.error) {
    failed();
    return false;
  }
  state.answer = answer;
  return true;
}

/** The chart is painted first; rules, tables and words follow, a moment later where they would hold up a next chart. */
const afterPaint = (what) => (document.hidden ? setTimeout(what) : requestAnimationFrame(() => setTimeout(what, slow() ? 120 : 0)));

/** What takes several estimates waits until the reader rests, one after the other; a change ends the row. */
const resting = [];
export const atRest = (task) => resting.push(task);
let timer = 0;
function later() {
  clearTimeout(timer);
  const turn = latest;
  timer = setTimeout(async () => {
    for (const task of resting) if (turn === latest) await task(() => turn === latest);
  }, 500);
}

/** The moment that slider, grid and chart share. */
export function goTo(index) {
  if (index === state.moment) return;
  state.moment = index;
  emit("moment");
}

export function pin(on) {
  state.pinned = on && current() ? { request: request(), answer: state.answer } : null;
  emit("pin");
}

/** Show what the link says. `tell` is given what is wrong with it, or "". */
export function begin(tell) {
  const read = () => {
    const { found, wrong } = fromHash(location.hash, history.state);
    if (found) tell(wrong);
    return found;
  };
  const found = read();
  if (found) Object.assign(state, structuredClone(start), found);
  const follow = () => {
    const found = read();
    if (found) load(found);
  };
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  addEventListener("engine", () => refresh());
  emit("change");
  refresh();
}

