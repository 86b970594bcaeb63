/** The settings: one control for each row of the field table, the common ones first. */
import { announce, h, invalid, tell } from "./format.js";
import { ask, started } from "./ask.js";
import { ModelBox } from "./models.js";
import { nameOf, read } from "./config.js";
import { amount, label, spelled, words } from "./said.js";
import { canRead, cannotRead, change, changed, missed, reset, setting, start, state, usually } from "./store.js";

const FIRST = ["model", "gpu", "run", "sequence", "batch", "precision", "optimizer", "attention", "checkpoint", "implementation"];
const SECOND = ["accumulation", "lora_rank", "shard", "gpus"];
const SIZES = ["layers", "hidden", "heads", "vocabulary", "tied"];
const SLIDERS = { sequence: [128, 131072], batch: [1, 256], accumulation: [1, 64], lora_rank: [0, 256], gpus: [1, 512], generate: [1, 8192] };
const REFERENCES = { attention: ["flash", 5], checkpoint: ["checkpoint", 6], implementation: ["recompute", 2], lora_rank: ["lora", 7], shard: ["fsdp", 10], optimizer: ["eight", 9], weights: ["qlora", 8], offload: ["offload", 11], loss: ["liger", 12] };

const POINT = "Point at a setting, or move to it by keyboard: what it means stands here.";

/** Powers of two between two ends, and none where none is possible: what a slider steps through. */
const powers = ([least, most]) => { const made = least ? [] : [0]; for (let n = least || 1; n <= most; n *= 2) made.push(n); return made; };

export class Form {
  constructor(tables) {
    this.tables = tables;
    this.rows = Object.fromEntries(tables.fields.map((row) => [row.name, row]));
    this.controls = {};
    this.fields = {};
    this.places = {}; // of all that a mistake can be about: fields, sizes, the model
    this.folds = [];
    this.reasons = {};
    this.only = {};
    this.help = h("p", { class: "small help", "aria-hidden": "true" }, POINT);
    this.file = null;
    this.element = h("form", { class: "controls form", "aria-label": "Settings", onsubmit: (event) => event.preventDefault() },
      h("div", { class: "fields" }, FIRST.map((name) => (name === "model" ? [this.model(), this.sizes()] : this.field(name)))), this.help, this.resetter(),
      this.fold("Sharing, LoRA, accumulation", SECOND),
      this.groups());
    for (const event of ["focusin", "pointerover"]) this.element.addEventListener(event, ({ target }) => {
      const row = this.rows[target.closest("[data-field]")?.dataset.field];
      this.help.textContent = row ? `${label(row.name)}: ${spelled(row.parts)}` : POINT;
    });
  }

  fold(title, names, fields = names.map((name) => this.field(name, true)), given = { class: "fold" }) {
    const mark = h("span", { class: "mark-set" });
    this.folds.push({ names, mark });
    return h("details", given, h("summary", {}, h("span", {}, title), mark), h("div", { class: "fields" }, fields));
  }

  /** Back to what everything was at first; the model stays. */
  resetter() {
    this.all = h("button", { type: "button", "aria-disabled": "true", onclick: () => { if (changed().length) { reset(changed()); announce("All settings are as they were at first."); } } }, "Reset all");
    this.count = h("span", { class: "small" });
    return h("p", { class: "row resetter" }, this.all, this.count);
  }

  /** Beside a field that is not as it was at first: the way back. */
  back(name) {
    const usual = start.settings[name] ?? this.rows[name]?.default ?? "";
    const text = `${label(name)}: back to ${name in this.rows ? String(usual) || "none" : "the model’s own"}`;
    return h("button", { type: "button", class: "back", hidden: true, title: text, "aria-label": text,
      onclick: () => {
        const { controls } = this.places[name];
        canRead(name);
        reset([name]);
        announce(`${label(name)} is as it was at first.`);
        (controls.find((one) => !one.disabled && one.type !== "radio") ?? controls.find((one) => one.checked) ?? this.all).focus(); // the button goes
      } }, "↺");
  }

  /** Where a control stands, and the line below it, which has all the width there is. */
  place(name, field, said, controls, back) {
    const made = field.contains(said) ? field : h("div", { class: "slot", "data-field": name in this.rows ? name : null }, field, said);
    said.id = `said-${name}`;
    for (const control of controls) control.setAttribute("aria-describedby", said.id);
    controls[0].id = `set-${name}`;
    this.places[name] = { made, said, controls, back };
    return made;
  }

  /** What is typed into a field for numbers may be none; then it says so until one is there. */
  number(name, given, set) {
    const control = h("input", { type: "number", inputmode: "decimal", ...given,
      oninput: () => {
        if (control.validity.badInput) return cannotRead(name, `${label(name)}: give ${given.step === 1 ? "a whole number" : "a number"} from ${given.min.toLocaleString("en-US")}${given.max === undefined ? "" : ` to ${given.max.toLocaleString("en-US")}`}`);
        canRead(name);
        set(control.value === "" ? null : Number(control.value));
      },
      // Emptied, or no number, it is again what it was, which then stands there.
      onblur: () => {
        if (control.value !== "") return;
        control.value = "";
        if (name in this.rows) control.value = String(setting(name));
        if (canRead(name)) change({});
      } });
    return control;
  }

  groups() {
    const shown = new Set([...FIRST, ...SECOND]);
    const found = new Map();
    for (const row of this.tables.fields) if (!shown.has(row.name)) found.set(row.group, [...(found.get(row.group) ?? []), row.name]);
    return [...found].map(([group, names]) => this.fold(group === "common" ? "more" : group, names));
  }

  model() {
    this.models = new ModelBox(this.tables.models, (model) => change({ model }, { push: true }));
    this.upload = h("input", { type: "file", accept: ".json,application/json", class: "visually-hidden", name: "config", "aria-label": "A config.json", onchange: () => this.read(this.upload.files[0]) });
    this.models.said.usual = "";
    return this.place("model", h("div", { class: "field wide" }, this.models.element,
      h("p", { class: "small hint" }, "or ", h("label", { class: "link" }, this.upload, "open a config.json"), ", or drop it anywhere on the page. It is read here; no other site sees it.")), this.models.said, [this.models.input]);
  }

  /** A config.json from the reader's disk. What is none, or of no model that is known, changes nothing. */
  async read(file) {
    if (!file) return;
    const model = nameOf(file), turn = (this.reading = Symbol(model));
    const refuse = (text) => { if (turn === this.reading) this.onerror?.({ error: text, fields: [] }); };
    try {
      const config = await read(file);
      await started();
      const found = await ask({ model, config, lines: 0, allocator: false });
      if (turn !== this.reading) return;
      // What is about a setting can be mended here; what is about none of them is wrong with the file.
      if (found?.error && !found.fields?.length) return refuse(words(found).startsWith(model) ? words(found) : `${model}: ${words(found)}`);
      this.onerror?.(null);
      const done = change({ model, config }, { push: true });
      tell("link", missed());
      await done;
    } catch (error) {
      refuse(`${model} cannot be read: ${error.message}`);
    }
  }

  sizes() {
    const made = SIZES.map((name) => {
      const control = name === "tied"
        ? h("select", { name: "size-tied", onchange: () => change({ sizes: { tied: control.value || null } }) }, h("option", { value: "" }, "as the model"), h("option", { value: "true" }, "yes"), h("option", { value: "false" }, "no"))
        : this.number(name, { min: 1, max: 1e9, step: 1, name: `size-${name}` }, (value) => change({ sizes: { [name]: value } }));
      this.controls[`size-${name}`] = control;
      const said = h("p", { class: "small said" }), back = this.back(name);
      said.usual = "";
      return this.place(name, h("div", { class: "field" }, h("label", {}, h("span", {}, label(name)), control), back), said, [control], back);
    });
    made.push(h("p", { class: "small wide" }, "What is given is taken; head count and feed-forward follow the hidden size."));
    return this.fold("Its size", SIZES, made, { class: "wide" });
  }

  field(name, folded = false) {
    const row = this.rows[name];
    const set = (value, push = false) => change({ settings: { [name]: value } }, { push });
    const reference = REFERENCES[name] ? h("a", { class: "ref", href: `#r-${REFERENCES[name][0]}`, "aria-label": `reference ${REFERENCES[name][1]}` }, `[${REFERENCES[name][1]}]`) : null;
    let control, more = null;
    if (name === "run") {
      const radios = row.choices.map((choice) => h("label", {}, h("input", { type: "radio", name: "run", value: choice, onchange: () => set(choice, true) }), choice));
      this.controls.run = radios.map((one) => one.firstElementChild);
      const said = h("p", { class: "small said" }), back = this.back(name);
      said.usual = "";
      return this.place(name, h("fieldset", { class: "field" }, h("legend", {}, "run"), h("div", { class: "segmented" }, radios), back), said, this.controls.run, back);
    }
    if (row.choices.length || name === "optimizer") {
      const options = name === "optimizer" ? Object.entries(this.tables.optimizers) : row.choices.map((choice) => [choice, choice]);
      control = h("select", { name, onchange: () => set(control.value, true) }, options.map(([value, text]) => h("option", { value }, text)));
    } else if (name === "gpu") {
      control = h("input", { name, type: "text", list: "gpus", placeholder: "none, or 24GiB", autocomplete: "off", spellcheck: "false", onchange: () => set(control.value, true) });
      more = h("datalist", { id: "gpus" }, this.tables.gpus.map((gpu) => h("option", { value: gpu.name }, `${gpu.gb} GB`)));
    } else if (row.type === "bool") {
      control = h("input", { name, type: "checkbox", onchange: () => set(control.checked) });
    } else if (row.type === "int" || row.type === "float") {
      control = this.number(name, { name, min: row.least, max: row.most, step: row.type === "int" ? 1 : "any", placeholder: row.default }, set);
      if (SLIDERS[name]) {
        const stops = powers(SLIDERS[name]);
        const slider = h("input", { type: "range", min: 0, max: stops.length - 1, step: 1, "aria-label": `${label(name)}, by powers of two`, oninput: () => { control.value = stops[slider.valueAsNumber]; set(stops[slider.valueAsNumber]); } });
        slider.stops = stops;
        more = slider;
        this.controls[`${name}-slider`] = slider;
      }
    } else {
      control = h("input", { name, type: "text", spellcheck: "false", autocomplete: "off", onchange: () => set(control.value) });
    }
    this.controls[name] = control;
    control.title = spelled(row.parts);
    const said = h("p", { class: "small said" }, folded ? spelled(row.parts) : "");
    said.usual = said.textContent;
    const back = this.back(name);
    const field = h("div", { class: `field${row.type === "bool" ? " check" : ""}${["gpu", "precision", "optimizer"].includes(name) ? " wide" : ""}` }, h("label", {}, h("span", {}, label(name)), control), reference, back, more);
    const made = this.place(name, field, said, more?.tagName === "INPUT" ? [control, more] : [control], back);
    this.fields[name] = this.places[name];
    return made;
  }

  /** What a mistake is about is marked, and the first of it says it; the fold around it opens. */
  wrong(mistake) {
    const hit = (mistake?.fields ?? []).filter((name) => this.places[name] && !this.places[name].made.hidden);
    for (const [name, { made, said, controls }] of Object.entries(this.places)) {
      const at = hit.indexOf(name);
      if (at < 0 && !made.classList.contains("wrong")) continue;
      made.classList.toggle("wrong", at >= 0);
      if (at >= 0) made.closest("details")?.setAttribute("open", "");
      said.textContent = at === 0 ? words(mistake) : said.usual;
      for (const control of controls) {
        invalid(control, at >= 0);
        control.setAttribute("aria-describedby", at > 0 ? this.places[hit[0]].said.id : said.id);
      }
    }
    if (!mistake) this.offer();
  }

  /** Choices that would be an error are not offered; where only one is left, its field says why. */
  refuses(found, only) {
    this.only = only;
    for (const [name, { controls: [control] }] of Object.entries(this.fields)) {
      const not = found[name] ?? {};
      const value = String(state.settings[name] ?? this.rows[name].default);
      for (const option of control.options ?? []) option.disabled = option.value in not && option.value !== value;
    }
    this.offer();
  }

  /** Settings that would change nothing: those of the other run are away, the others cannot be touched and say why. */
  idle(reasons) {
    this.reasons = reasons;
    this.offer();
  }

  offer() {
    for (const [name, { made, said, controls }] of Object.entries(this.fields)) {
      const reason = spelled(this.reasons[name] ?? []), only = this.only[name];
      const told = reason ? `No effect ${reason}.` : only ? `Only ${setting(name)} here: ${spelled(only)}.` : "";
      made.hidden = reason === "in training" || reason === "in inference";
      for (const control of controls) control.disabled = Boolean(told);
      if (!made.classList.contains("wrong")) said.textContent = told || said.usual;
    }
    for (const fold of this.element.querySelectorAll(".fold")) fold.hidden = !fold.querySelector("[data-field]:not([hidden])");
    this.mark();
  }

  /** The controls as the state has them; the one that is being typed in is left alone. */
  sync() {
    this.models.set(state.config ? `${state.model} (your file)` : state.model);
    for (const name of SIZES) this.put(this.controls[`size-${name}`], state.sizes[name] ?? "");
    for (const row of this.tables.fields) {
      const value = state.settings[row.name] ?? (row.name === "gpu" ? "" : row.name === "sequence" ? usually(row.name) : row.default);
      const control = this.controls[row.name];
      if (row.name === "run") for (const radio of control) radio.checked = radio.value === value;
      else if (row.type === "bool") control.checked = value === true || value === "true";
      else this.put(control, Array.isArray(value) ? value.join(",") : value);
      const meaning = { precision: this.tables.precisions, implementation: this.tables.words }[row.name];
      if (meaning) {
        const { said } = this.fields[row.name];
        said.textContent = said.usual = meaning[value] ?? "";
      }
      const slider = this.controls[`${row.name}-slider`];
      if (slider) {
        const at = slider.stops.findLastIndex((stop) => stop <= Number(value));
        this.put(slider, Math.max(0, at));
        slider.setAttribute("aria-valuetext", amount(row, value));
      }
    }
    this.mark();
  }

  /** What is not as it was at first: said on its fold, and counted; beside it is the way back. */
  mark() {
    const all = changed();
    for (const [name, { back }] of Object.entries(this.places)) if (back) back.hidden = !all.includes(name);
    for (const { names, mark } of this.folds) {
      const here = names.filter((name) => all.includes(name));
      const told = here.map((name) => `${label(name)} ${state.sizes[name] ?? setting(name)}${this.reasons[name] ? " (no effect)" : ""}`);
      mark.textContent = here.length ? ` ${here.length} changed: ${told.join(", ")}` : "";
    }
    this.all.setAttribute("aria-disabled", String(!all.length));
    this.count.textContent = all.length ? `${all.length} changed` : "Nothing changed";
    this.count.title = all.map(label).join(", ");
  }
  put(control, value) {
    if (control === document.activeElement && control.type !== "range") return;
    const number = control.type !== "number" || (value !== "" && Number.isFinite(Number(value)));
    control.value = number ? String(value) : ""; // of other words a browser complains
  }

  /** What the model is, where nothing else was given: as placeholders of the sizes. */
  sized(model) {
    for (const name of SIZES) {
      const control = this.controls[`size-${name}`];
      control.disabled = !model[name === "tied" ? "vocabulary" : name];
      if (name !== "tied") control.placeholder = control.disabled ? "has none" : String(model[name]);
    }
  }
}
