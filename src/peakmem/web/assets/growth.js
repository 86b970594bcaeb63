/** Section 2: the four kinds over a step, and what makes each grow. */
import { h, gib, named, announce, title } from "./format.js";

const SHOWN = ["weights", "activations", "gradients", "optimizer_state"];
const FRAME = 3.5; // the strip's height stands for so many times what a kind comes to at first

export class Growth extends HTMLElement {
  show(data) {
    this.data = data;
    this.at = 0;
    this.buttons = data.cases.map((one, i) =>
      h("button", { type: "button", "aria-pressed": String(i === 0), onclick: () => this.draw(i) }, one.name));
    this.rows = h("div", { class: "strips" });
    this.replaceChildren(h("div", { class: "controls row", role: "group", "aria-label": "What grows" }, this.buttons), this.rows,
      this.sizes = h("p", { class: "small" }));
    this.draw(0);
  }

  draw(index) {
    const one = this.data.cases[index];
    const first = this.data.cases[0];
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
    this.sizes.textContent = `A GPT-2: ${one.words}. Each strip has its own scale.`;
    this.rows.replaceChildren(...SHOWN.map((kind) => {
      const full = FRAME * first.kinds[kind];
      const bars = one.chart.map((row) => {
        const share = (row.by_kind[kind] ?? 0) / full;
        return h("span", { class: share > 1 ? "over" : "", style: `height:${Math.min(share, 1) * 100}%`, title: `${row.moment}: ${gib(row.by_kind[kind] ?? 0)}` });
      });
      const times = one.times[kind];
      return h("div", { class: `strip ${kind}` }, h("p", { class: "name" }, named(kind)),
        h("div", { class: "bars", role: "img", "aria-label": `${title(kind)}: ${gib(one.kinds[kind])}, ${times} times` }, bars),
        h("p", { class: "amount" }, h("b", {}, index ? `× ${times}` : ""), ` ${gib(one.kinds[kind])}`));
    }));
    if (index !== this.at) announce(`${one.name}: ${SHOWN.map((kind) => `${title(kind)} × ${one.times[kind]}`).join(", ")}`);
    this.at = index;
  }
}
customElements.define("pm-growth", Growth);
