/** The model: a box to type in, with a list that follows (ARIA's combobox pattern, list autocomplete, manual selection). */
import { announce, h, people } from "./format.js";

const CUSTOM = { name: "custom", words: "a GPT block of any size", family: "", aliases: [] };
/** A name without what people write in different ways, as the engine takes it. */
const bare = (text) => text.toLowerCase().split("/").at(-1).replace(/^meta-/, "").replace(/[-_](instruct|chat|it|pt|hf|base|text)(?=[-_]|$)/g, "").replace(/[^a-z0-9.]/g, "");

/** How many letters must be put in, taken out, changed or swapped with the next, to make one word of the other. */
function slips(a, b) {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      row[j] = Math.min(rows[i - 1][j] + 1, row[j - 1] + 1, rows[i - 1][j - 1] + Number(a[i - 1] !== b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], rows[i - 2][j - 2] + 1);
    }
    rows.push(row);
  }
  return rows[a.length][b.length];
}
/** The share of a name that is as typed; a name whose beginning alone was typed counts nearly as much. */
const alike = (name, typed) => Math.max(1 - slips(name, typed) / Math.max(name.length, typed.length, 1), 0.95 - slips(name.slice(0, typed.length), typed) / Math.max(typed.length, 1));

/** Rows that a text means, the best first; and whether they are only near to it. */
export function search(rows, text) {
  const whole = bare(text);
  const parts = text.toLowerCase().split("/").at(-1).split(/[^a-z0-9.]+/).map(bare).filter(Boolean);
  if (!whole) return { found: rows, near: false };
  const rank = (row) => {
    const names = [row.name, ...row.aliases].map(bare);
    if (names.includes(whole)) return names[0] === whole ? 0 : 1;
    if (names.some((name) => name.startsWith(whole))) return 2;
    const all = [...names, bare(row.family)].join(" ");
    return all.includes(whole) ? 3 : parts.every((part) => all.includes(part)) ? 4 : 9;
  };
  const sorted = (by) => rows.map((row, at) => ({ row, at, by: by(row) })).sort((a, b) => a.by - b.by || a.at - b.at);
  const found = sorted(rank).filter((one) => one.by < 9);
  if (found.length) return { found: found.map((one) => one.row), near: false };
  const close = sorted((row) => -Math.max(...[row.name, ...row.aliases].map((name) => alike(bare(name), whole.slice(0, 60)))));
  return { found: close.filter((one) => one.by < -0.6).slice(0, 5).map((one) => one.row), near: true };
}

export class ModelBox {
  /** take(name): what was chosen, a name of the list or whatever was typed. */
  constructor(rows, take) {
    this.rows = [CUSTOM, ...rows];
    this.take = take;
    this.shown = "";
    this.active = -1;
    this.input = h("input", { type: "text", name: "model", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": "models", placeholder: "a name, or part of one",
      oninput: () => this.open(this.input.value), onchange: () => this.leave(), onkeydown: (event) => this.key(event), onclick: () => this.toggle(), onblur: () => this.leave(), onfocus: () => this.input.select() });
    this.list = h("div", { id: "models", role: "listbox", "aria-label": "Models", hidden: true });
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // the box keeps the focus
    this.said = h("p", { class: "small said", role: "status" });
    this.element = h("div", { class: "modelbox" }, h("label", {}, h("span", {}, "model"), this.input), this.list, this.said);
  }

  /** What the state says. */
  set(text) {
    this.shown = text;
    if (document.activeElement !== this.input || this.list.hidden) this.input.value = text;
  }

  toggle() {
    if (this.list.hidden) this.open("");
    else this.close();
  }

  open(text) {
    const { found, near } = search(this.rows, text);
    this.found = found;
    const option = (row, i) => h("div", { role: "option", id: `model-${i}`, "aria-selected": "false", class: row.name === this.shown ? "chosen" : null, onclick: () => this.choose(row.name) },
      h("b", {}, row.name), h("span", { class: "quiet" }, ` ${row.words ?? people(row.parameters)}${row.aliases.length && text ? `, also ${row.aliases.slice(0, 2).join(", ")}` : ""}`), row.name === this.shown ? h("span", { class: "visually-hidden" }, ", chosen") : "");
    this.options = found.map(option);
    // Untouched it shows families; typed into, the best first.
    const families = new Map();
    if (!text) found.forEach((row, i) => families.set(row.family, [...(families.get(row.family) ?? []), this.options[i]]));
    this.list.replaceChildren(...(text ? this.options : [...families].map(([family, items]) => (family ? h("div", { role: "group", "aria-label": family }, h("span", { class: "family", "aria-hidden": "true" }, family), items) : items)).flat()));
    this.list.hidden = !found.length;
    this.input.setAttribute("aria-expanded", String(found.length > 0));
    this.said.textContent = near ? (found.length ? `No model is called that. Did you mean ${found[0].name}?` : "No model is called that.") : "";
    this.mark(-1);
    if (text) announce(near ? "" : `${found.length} ${found.length === 1 ? "model" : "models"}`);
    else this.options[found.findIndex((row) => row.name === this.shown)]?.scrollIntoView({ block: "nearest" });
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.active = -1;
  }

  mark(at) {
    const before = this.options[this.active];
    before?.classList.remove("active");
    before?.setAttribute("aria-selected", "false");
    this.active = at;
    const one = this.options[at];
    if (!one) return this.input.removeAttribute("aria-activedescendant");
    one.classList.add("active");
    one.setAttribute("aria-selected", "true");
    one.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", one.id);
  }

  key(event) {
    const walk = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (walk) {
      event.preventDefault();
      if (this.list.hidden) {
        this.open(this.input.value === this.shown ? "" : this.input.value);
        if (!event.altKey) this.mark(Math.max(0, this.found.findIndex((row) => row.name === this.shown)));
      } else this.mark(this.active < 0 && walk < 0 ? this.options.length - 1 : Math.max(0, Math.min(this.options.length - 1, this.active + walk)));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.active >= 0) this.choose(this.found[this.active].name);
      else this.leave();
    } else if (event.key === "Escape" && !this.list.hidden) {
      event.preventDefault();
      this.close();
      this.said.textContent = "";
      this.input.value = this.shown;
    }
  }

  choose(name) {
    this.close();
    this.said.textContent = "";
    this.input.value = name;
    if (name !== this.shown) this.take(name);
  }

  /** What was typed is taken; a text that means one model is that model, any other the engine may judge. */
  leave() {
    const text = this.input.value.trim();
    this.close();
    if (!text || text === this.shown) {
      this.input.value = this.shown;
      this.said.textContent = "";
      return;
    }
    const { found, near } = search(this.rows, text);
    const exact = found.find((row) => [row.name, ...row.aliases].some((name) => bare(name) === bare(text)));
    this.choose(exact?.name ?? (found.length === 1 && !near ? found[0].name : text));
  }
}
