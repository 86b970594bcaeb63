/** The settings: one control for each row of the field table, the common ones first. */
import { h, tell } from "./format.js";
import { parse } from "./ask.js";
import { ModelBox } from "./models.js";
import { state, change, missed } from "./store.js";

const FIRST = ["model", "gpu", "run", "sequence", "batch", "precision", "optimizer", "attention", "checkpoint", "implementation"];
const SECOND = ["accumulation", "lora_rank", "shard", "gpus"];
const SIZES = ["layers", "hidden", "heads", "vocabulary", "tied"];
const NAMES = { gpu: "GPU", gpus: "GPUs", lora_rank: "LoRA rank", lora_targets: "LoRA targets", tied: "tied embeddings", hidden: "hidden size", heads: "attention heads", sequence: "sequence length", batch: "batch per GPU" };
const SLIDERS = { sequence: [128, 131072], batch: [1, 256], accumulation: [1, 64], lora_rank: [1, 256], gpus: [1, 512], generate: [1, 8192] };
const REFERENCES = { attention: ["flash", 5], checkpoint: ["checkpoint", 6], implementation: ["recompute", 2], lora_rank: ["lora", 7], shard: ["fsdp", 10], optimizer: ["eight", 9], weights: ["qlora", 8], offload: ["offload", 11], loss: ["liger", 12] };

const label = (name) => NAMES[name] ?? name.replaceAll("_", " ");
/** Words of the command line as the form calls them. */
const plain = (text) => text.replace(/: `peakmem list.*$/, "").replace(/--([a-z-]+)/g, (_, flag) => label(flag.replaceAll("-", "_")));
const POINT = "Point at a setting, or move to it by keyboard: what it means stands here.";

/** Powers of two between two ends: what a slider steps through. */
const powers = ([least, most]) => { const made = []; for (let n = least; n <= most; n *= 2) made.push(n); return made; };

export class Form {
  constructor(tables) {
    this.tables = tables;
    this.rows = Object.fromEntries(tables.fields.map((row) => [row.name, row]));
    this.controls = {};
    this.fields = {};
    this.reasons = {};
    this.only = {};
    this.help = h("p", { class: "small help", "aria-hidden": "true" }, POINT);
    this.file = null;
    this.element = h("form", { class: "controls form", "aria-label": "Settings", onsubmit: (event) => event.preventDefault() },
      h("div", { class: "fields" }, FIRST.map((name) => (name === "model" ? [this.model(), this.sizes()] : this.field(name)))), this.help,
      this.fold("Sharing, LoRA, accumulation", SECOND),
      this.groups());
    for (const event of ["focusin", "pointerover"]) this.element.addEventListener(event, ({ target }) => {
      const name = target.closest("[data-field]")?.dataset.field;
      this.help.textContent = name ? `${label(name)}: ${plain(this.rows[name].help)}` : POINT;
    });
  }

  fold(title, names) {
    return h("details", { class: "fold" }, h("summary", {}, title), h("div", { class: "fields" }, names.map((name) => this.field(name, true))));
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
    return h("div", { class: "field wide" }, this.models.element,
      h("p", { class: "small hint" }, "or ", h("label", { class: "link" }, this.upload, "open a config.json"), ", or drop it anywhere on the page. It is read here; no other site sees it."));
  }

  /** A config.json from the reader's disk. */
  async read(file) {
    if (!file) return;
    try {
      if (file.size > 1e6) throw new Error("it is larger than 1 MB");
      const config = parse(await file.text());
      if (!config || typeof config !== "object" || Array.isArray(config)) throw new Error("it holds no fields of a model");
      this.refuse("");
      const done = change({ model: file.name.slice(0, 60), config }, { push: true });
      tell("link", missed());
      await done;
    } catch (error) {
      this.refuse(`${file.name} cannot be read: ${error instanceof SyntaxError ? "it is not JSON" : error.message}`);
    }
  }
  refuse(text) {
    this.onerror?.(text);
  }

  sizes() {
    const made = SIZES.map((name) => {
      const control = name === "tied"
        ? h("select", { name: "size-tied", onchange: () => change({ sizes: { tied: control.value || null } }) }, h("option", { value: "" }, "as the model"), h("option", { value: "true" }, "yes"), h("option", { value: "false" }, "no"))
        : h("input", { type: "number", min: 1, step: 1, name: `size-${name}`, inputmode: "numeric", oninput: () => change({ sizes: { [name]: control.value ? Number(control.value) : null } }) });
      this.controls[`size-${name}`] = control;
      return h("label", { class: "field" }, h("span", {}, label(name)), control);
    });
    this.sizing = h("details", { class: "wide" }, h("summary", {}, "Its size"), h("div", { class: "fields" }, made),
      h("p", { class: "small" }, "What is given is taken; head count and feed-forward follow the hidden size."));
    return this.sizing;
  }

  field(name, folded = false) {
    const row = this.rows[name];
    const set = (value, push = false) => change({ settings: { [name]: value } }, { push });
    const reference = REFERENCES[name] ? h("a", { class: "ref", href: `#r-${REFERENCES[name][0]}`, "aria-label": `reference ${REFERENCES[name][1]}` }, `[${REFERENCES[name][1]}]`) : null;
    let control, more = null;
    if (name === "run") {
      const radios = row.choices.map((choice) => h("label", {}, h("input", { type: "radio", name: "run", value: choice, onchange: () => set(choice, true) }), choice));
      this.controls.run = radios.map((one) => one.firstElementChild);
      return h("fieldset", { class: "field" }, h("legend", {}, "run"), h("div", { class: "segmented" }, radios));
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
      control = h("input", { name, type: "number", min: row.least, max: row.most, step: row.type === "int" ? 1 : "any", inputmode: "decimal", placeholder: row.default,
        // Emptied it is the default again, which then stands there.
        oninput: () => { if (!control.validity.badInput) set(control.value === "" ? null : Number(control.value)); },
        onblur: () => { if (control.value === "") control.value = String(state.settings[name] ?? row.default); } });
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
    control.title = plain(row.help);
    const said = h("p", { class: "small said" }, folded ? plain(row.help) : "");
    said.usual = said.textContent;
    const made = h("div", { class: `field${row.type === "bool" ? " check" : ""}${["gpu", "precision", "optimizer"].includes(name) ? " wide" : ""}`, "data-field": name }, h("label", {}, h("span", {}, label(name)), control), reference, more, said);
    this.fields[name] = { made, said, controls: more?.tagName === "INPUT" ? [control, more] : [control] };
    return made;
  }

  /** What an error is about says it, too, where it is; the fold around it opens. */
  wrong(text) {
    const name = (text.match(/--([a-z-]+)/)?.[1] ?? text.match(/^unknown ([a-z ]+)/i)?.[1] ?? "").trim().replace(/[- ]/g, "_").toLowerCase();
    for (const [field, { made, said, controls }] of Object.entries(this.fields)) {
      const hit = field === name && !made.hidden;
      if (!hit && !made.classList.contains("wrong")) continue;
      made.classList.toggle("wrong", hit);
      if (hit) made.closest("details")?.setAttribute("open", "");
      if (hit) said.textContent = plain(text);
      for (const control of controls) control.setAttribute("aria-invalid", String(hit));
    }
    if (!text) this.offer();
  }

  /** Choices that would be an error are not offered; where only one is left, its field says why. */
  refuses(found) {
    this.only = {};
    for (const [name, { controls: [control] }] of Object.entries(this.fields)) {
      const not = found[name] ?? {};
      const value = String(state.settings[name] ?? this.rows[name].default);
      const options = control.tagName === "SELECT" ? [...control.options] : [];
      for (const option of options) option.disabled = option.value in not && option.value !== value;
      const left = options.length ? options.some((one) => one.value !== value && !one.disabled) : value !== String(this.rows[name].default);
      const [why] = Object.values(not);
      if (why && !left && !(value in not)) this.only[name] = `Only ${value} here: ${plain(why.replace(/^--\S+ \S+: /, ""))}.`;
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
      const reason = this.reasons[name] ?? "";
      const told = reason ? `No effect ${plain(reason)}.` : this.only[name] ?? "";
      made.hidden = reason === "in training" || reason === "in inference";
      for (const control of controls) control.disabled = Boolean(told);
      if (!made.classList.contains("wrong")) said.textContent = told || said.usual;
    }
    for (const fold of this.element.querySelectorAll(".fold")) fold.hidden = !fold.querySelector("[data-field]:not([hidden])");
  }

  /** The controls as the state has them; the one that is being typed in is left alone. */
  sync() {
    this.models.set(state.config ? `${state.model} (your file)` : state.model);
    for (const name of SIZES) this.put(this.controls[`size-${name}`], state.sizes[name] ?? "");
    for (const row of this.tables.fields) {
      const value = state.settings[row.name] ?? (row.name === "gpu" ? "" : row.default);
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
        slider.setAttribute("aria-valuetext", `${value} ${row.unit}`);
      }
    }
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
