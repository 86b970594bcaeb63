/** The state as a link: #v=1&model=…&sequence=…; what is not the default, by its own name. */
import { sound } from "./config.js";

const PARTS = ["model", "config"];
const LONGEST = 99_000; // the command line reads back 100,000 with the address
const ELSEWHERE = "too-long";
let sizes = new Set();
let settings = new Set();

export function setNames(tables) {
  sizes = new Set(tables.sizes);
  settings = new Set(tables.fields.map((row) => row.name));
}

/** The link, and what of the state it is too short for: the browser keeps that beside it. */
export function toHash(state) {
  const whole = written(state, state.config);
  return whole.length <= LONGEST ? { hash: whole, beside: null } : { hash: written(state, ELSEWHERE), beside: { config: state.config } };
}

function written(state, config) {
  const found = new URLSearchParams([["v", "1"], ["model", state.model]]);
  if (config) found.set("config", config);
  for (const part of [state.sizes, state.settings]) {
    for (const [name, value] of Object.entries(part)) found.set(name, String(value));
  }
  if (!("gpu" in state.settings)) found.set("gpu", "");
  return "#" + found.toString().replace(/%2C/g, ",");
}

/** What a link says, with what lies beside it in the browser; and what is wrong with it, in words. */
export function fromHash(hash, beside) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const versions = new Set(given.getAll("v"));
  if (!given.size || (!versions.size && !hash.includes("="))) return { found: null, wrong: "" }; // a place on the page
  if (versions.size !== 1 || !versions.has("1")) return { found: null, wrong: `The link is not taken: ${versions.size ? `it says v=${[...versions].join(" and v=").slice(0, 40)}` : "it does not say v=1"}, and this page reads links of v=1.` };
  const found = { model: given.getAll("model").at(-1) || "custom", config: null, sizes: {}, settings: {} };
  const unknown = [];
  const wrong = [];
  const twice = new Set([...given.keys()].filter((name) => given.getAll(name).length > 1));
  if (twice.size) wrong.push(`The link says twice: ${[...twice].join(", ")}; the last is taken.`);
  for (const [name, value] of given) {
    if (name === "v" || PARTS.includes(name)) continue;
    if (value === "") continue;
    if (settings.has(name)) found.settings[name] = value;
    else if (sizes.has(name)) found.sizes[name] = value;
    else if (!unknown.includes(name)) unknown.push(name);
  }
  const config = given.getAll("config").at(-1);
  if (config === ELSEWHERE) found.config = beside?.config ?? null;
  else if (config && sound(config)) found.config = config;
  else if (config) wrong.push("The config in the link is not JSON.");
  if (config === ELSEWHERE && !found.config) wrong.push(`${found.model} was too long for a link: open the file again.`);
  if (unknown.length) wrong.push(`The link says things that are unknown here: ${unknown.join(", ")}`);
  return { found, wrong: wrong.join(" ") };
}
