/** Section 3: the two products of backward, and what each reads. */
import { h, gib, letter, announce } from "./format.js";
import { written } from "./grid.js";

const sub = (text) => [text.replace(/\d/, ""), h("sub", {}, text.match(/\d/)?.[0] ?? "")];

export class Products extends HTMLElement {
  show(data) {
    const sizes = Object.fromEntries(data.tensors.map((row) => [row.name, gib(row.bytes, 1)]));
    const box = (name, kind, text, size) => h("div", { class: `tensor ${kind}`, "data-tensor": name },
      h("span", { class: "s", "aria-hidden": "true" }, letter(kind)), h("b", {}, sub(name)), h("span", {}, written(text)), h("span", { class: "n" }, size));
    const product = (name, formula, reads, writes, words) => {
      const button = h("button", { type: "button", class: "product", "aria-pressed": "false", "data-name": name,
        onclick: () => this.pick(this.picked === name ? "" : name), onmouseenter: () => this.mark(name), onmouseleave: () => this.mark(this.picked),
        onfocus: () => this.mark(name), onblur: () => this.mark(this.picked) }, h("span", { class: "formula" }, formula), h("span", {}, written(words)));
      button.reads = reads;
      button.writes = writes;
      return button;
    };
    this.products = [
      product("gradient", [h("b", {}, "∇W", h("sub", {}, "2")), " = ", "δ", h("sub", {}, "2"), " a", h("sub", {}, "1"), h("sup", {}, "T")], ["δ2", "a1"], ["∇W2"],
        "reads δ and the saved input: this is why a1 was kept since forward"),
      product("error", [h("b", {}, "∂a", h("sub", {}, "1")), " = ", "W", h("sub", {}, "2"), h("sup", {}, "T"), " δ", h("sub", {}, "2")], ["δ2", "W2"], ["∂a1"],
        "reads δ and the weights; times f′ it is δ1, and layer 1 does the same"),
    ];
    this.picked = "";
    this.replaceChildren(h("div", { class: "trio" },
      h("div", { class: "column" }, h("p", { class: "small" }, "What is there"),
        box("δ2", "temporary", "error, just arrived", sizes.errors), box("a1", "activations", "input, saved in forward", sizes.a1), box("W2", "weights", "weights", sizes.W2)),
      h("div", { class: "column" }, h("p", { class: "small" }, "Two products: press one"), this.products),
      h("div", { class: "column" }, h("p", { class: "small" }, "What is made"),
        box("∇W2", "gradients", "gradient, as large as W2", sizes["∇W2"]), box("∂a1", "temporary", "error for layer 1, as large as a1", sizes.errors))));
  }

  pick(name) {
    this.picked = name;
    for (const button of this.products) button.setAttribute("aria-pressed", String(button.dataset.name === name));
    this.mark(name);
    const one = this.products.find((button) => button.dataset.name === name);
    if (one) announce(`reads ${one.reads.join(" and ")}, makes ${one.writes.join(" and ")}`);
  }

  mark(name) {
    const one = this.products.find((button) => button.dataset.name === name);
    for (const box of this.querySelectorAll("[data-tensor]")) {
      const uses = !one || one.reads.includes(box.dataset.tensor) || one.writes.includes(box.dataset.tensor);
      box.classList.toggle("off", !uses);
    }
    for (const button of this.products) button.classList.toggle("off", Boolean(one) && button !== one);
  }
}
customElements.define("pm-products", Products);
