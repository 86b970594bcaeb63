/** One state, one event for each thing that changes. The engine is asked from here and from nowhere else. */
import { ask, has, key, live, slow } from "./ask.js";
import { toHash, fromHash } from "./url.js";

export const start = { model: "llama-3.1-8b", config: null, sizes: {}, settings: { gpu: "H100 SXM 80GB" } };
/** error: as the engine tells a mistake, or null. */
export const state = { ...structuredClone(start), moment: -1, answer: null, of: "", room: null, error: null, pinned: null, measured: null };
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
/** How long a model's sequence is where none is given: as the field table says, or as many positions as there are. */
const lengths = {};
export const usually = (name) => (name === "sequence" && lengths[state.config ?? state.model]) || defaults[name];
export function setDefaults(fields) {
  defaults = Object.fromEntries(fields.map((row) => [row.name, String(row.default)]));
}

/** Settings and sizes that are not as they were at first. */
export function changed() {
  const usual = { ...defaults, ...start.settings };
  const names = new Set([...Object.keys(state.settings), ...Object.keys(start.settings)]);
  return [...Object.keys(state.sizes), ...[...names].filter((name) => String(state.settings[name] ?? "") !== usual[name])];
}

/** These as they were at first. */
export const reset = (names) => change({ sizes: none(names, state.sizes), settings: { ...none(names, state.settings), ...kept(names) } }, { push: true });
const none = (names, given) => Object.fromEntries(names.filter((name) => name in given).map((name) => [name, null]));
const kept = (names) => Object.fromEntries(Object.entries(start.settings).filter(([name]) => names.includes(name)));

/** Fields in which something stands that is no number, each with what is to be said. */
const unread = new Map();
export function cannotRead(name, text) {
  unread.set(name, { error: text, fields: [name] });
  refresh();
}
export const canRead = (name) => unread.delete(name);

/** A setting as it is, also where nobody set it. */
export const setting = (name) => state.settings[name] ?? usually(name);

/** Change the model, sizes or settings; null takes a setting back to its default. */
export function change({ model, config, sizes, settings }, { push = false } = {}) {
  if (model !== undefined && (model !== state.model || config)) {
    Object.assign(state, { model, config: config ?? null, sizes: {} });
  }
  for (const [part, given] of [["sizes", sizes], ["settings", settings]]) {
    for (const [name, value] of Object.entries(given ?? {})) {
      const usual = part === "settings" && name !== "gpu" && String(value) === usually(name);
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
export const current = () => state.answer !== null && !unread.size && state.of === key(request());

/** Replace everything, as a link does. */
export function load(given) {
  Object.assign(state, structuredClone(start), given);
  unread.clear();
  emit("change");
  return refresh();
}

/** Where a mistake is in the way, the last right answer stays, and says that it is old. */
function failed(mistake) {
  state.error = mistake;
  delete document.documentElement.dataset.busy;
  document.documentElement.toggleAttribute("data-old", state.answer !== null && !current());
  emit("error");
}

let latest = 0;
export async function refresh() {
  const turn = ++latest;
  const [mistake] = unread.values();
  if (mistake) return failed(mistake);
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
  if (answer === null || answer.error) {
    failed(answer ?? { error: "", unanswered: true });
    return false;
  }
  state.answer = answer;
  if (!("sequence" in state.settings) && answer.ledger.run?.sequence) lengths[state.config ?? state.model] = String(answer.ledger.run.sequence);
  state.error = null;
  document.documentElement.removeAttribute("data-old");
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
    if (found || wrong) tell(wrong);
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

