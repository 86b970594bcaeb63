/** Section 1: one parameter as cells of one byte. */
import { h, announce } from "./format.js";
import { term } from "./terms.js";

const PLAIN = ["adamw", "sgd", "momentum", "lion", "adafactor", "muon", "adamw-8bit", "adamw-4bit", "amsgrad"];

/** Recipes by the word of the glossary that explains them, where it is another. */
const WORDS = { mixed: "mixed precision", "amp-bf16": "autocast", "amp-fp16": "autocast", fp16: "bf16", fp32: "bf16" };

export class Cells extends HTMLElement {
  show(data) {
    this.data = data;
    const choose = (label, options, value, name) => {
      const select = h("select", { name, onchange: () => this.draw(true) },
        options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
      return h("label", { class: "field" }, h("span", {}, label), select);
    };
    const precisions = Object.entries(data.precisions).map(([key]) => [key, key]);
    const optimizers = PLAIN.filter((key) => data.optimizers[key]).map((key) => [key, data.optimizers[key]]);
    this.means = h("p", { class: "small means" });
    this.parts = h("div", { class: "parts" });
    this.total = h("p", { class: "total", "aria-live": "polite" });
    this.replaceChildren(
      h("div", { class: "controls row" }, choose("Precision", precisions, "mixed", "precision"),
        choose("Optimizer", optimizers, "adamw", "optimizer")),
      this.parts, this.total, this.means);
    this.draw(false);
  }

  chosen(name) {
    return /** @type {HTMLSelectElement} */ (this.querySelector(`[name=${name}]`)).value;
  }

  draw(moving) {
    const row = this.data.rows.find((r) => r.precision === this.chosen("precision") && r.optimizer === this.chosen("optimizer"));
    if (!row) return;
    this.means.replaceChildren(term(WORDS[row.precision] ?? row.precision, row.precision), `: ${this.data.precisions[row.precision]}. In bf16 and fp16 a number takes two bytes, in fp32 four.`);
    const old = new Map([...this.parts.children].map((part) => [part.dataset.name, part]));
    const made = row.parts.map((part) => this.part(old.get(part.name), part, moving));
    for (const [name, part] of old) if (!row.parts.some((p) => p.name === name)) part.remove();
    made.forEach((part, i) => { if (this.parts.children[i] !== part) this.parts.insertBefore(part, this.parts.children[i] ?? null); });
    this.total.replaceChildren(h("strong", {}, `${row.total} bytes a parameter`),
      ` · 7 billion parameters: ${row.seven}${row.precision === "mixed" && row.optimizer === "adamw" ? ` (${row.seven_gb})` : ""}`);
    if (moving) announce(`${row.total} bytes a parameter`);
  }

  part(found, part, moving) {
    const made = found ?? h("div", { class: `part ${part.kind}`, "data-name": part.name },
      h("div", { class: "bytes", "aria-hidden": "true" }), h("p", {}));
    const cells = made.firstElementChild;
    while (cells.children.length > part.cells) cells.lastElementChild.remove();
    while (cells.children.length < part.cells) cells.append(h("span", { class: moving ? "new" : "" }));
    const share = Number(part.bytes) < 0.9 ? Number(part.bytes) : 1;
    cells.style.setProperty("--share", `${Math.max(6, share * 100)}%`);
    cells.classList.toggle("broken", share < 1);
    made.lastElementChild.replaceChildren(h("b", {}, part.bytes), ` ${part.name}`);
    return made;
  }
}
customElements.define("pm-cells", Cells);
