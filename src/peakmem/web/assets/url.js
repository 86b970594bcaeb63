/** The state as a link: #v=1&model=…&sequence=…; what is not the default, by its own name. */
const PARTS = ["model", "config"];
let sizes = new Set();
let settings = new Set();

export function setNames(tables) {
  sizes = new Set(tables.sizes);
  settings = new Set(tables.fields.map((row) => row.name));
}

export function toHash(state) {
  const found = new URLSearchParams([["v", "1"], ["model", state.model]]);
  if (state.config) {
    const text = JSON.stringify(state.config);
    if (text.length <= 4000) found.set("config", text);
  }
  for (const part of [state.sizes, state.settings]) {
    for (const [name, value] of Object.entries(part)) found.set(name, String(value));
  }
  if (!("gpu" in state.settings)) found.set("gpu", "");
  return "#" + found.toString().replace(/%2C/g, ",");
}

/** What a link says, and the names in it that mean nothing here. */
export function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  if (!given.has("v")) return { found: null, unknown: [] };
  const found = { model: given.get("model") || "custom", config: null, sizes: {}, settings: {} };
  const unknown = [];
  for (const [name, value] of given) {
    if (name === "v" || PARTS.includes(name)) continue;
    if (value === "") continue;
    if (settings.has(name)) found.settings[name] = value;
    else if (sizes.has(name)) found.sizes[name] = value;
    else unknown.push(name);
  }
  try {
    if (given.get("config")) found.config = JSON.parse(given.get("config") ?? "");
  } catch {
    unknown.push("config");
  }
  return { found, unknown };
}
