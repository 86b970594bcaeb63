/** Section 4: tensors × moments of the three-layer network. Slider, keys, columns and the chart move one moment. */
import { h, gib, scrolls, swatch, title, announce } from "./format.js";
import { state, goTo, on } from "./store.js";

const NAMES = { z: "z1 … z3, before ReLU", errors: "errors on their way back", input: "input" };
const SHORT = { "optimizer state": "opt", input: "x", z: "z", errors: "δ" };
const SUB = /([Wazδ∂∇]+a?W?)(\d)/g;

/** a1 with its index below the line. */
export function written(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(SUB)) {
    parts.push(text.slice(at, found.index) + found[1], h("sub", {}, found[2]));
    at = found.index + found[0].length;
  }
  return [...parts, text.slice(at)];
}

const spoken = (list) => list.length ? list.map((one) => `${one.name} (${gib(one.bytes, 1)})`).join(", ") : "nothing";

export class Grid extends HTMLElement {
  show(data) {
    this.data = data;
    this.guess = "";
    const last = data.moments.length - 1;
    const top = Math.max(...data.moments.map((one) => one.peak));
    this.slider = h("input", { type: "range", min: 0, max: last, step: 1, value: 0, "aria-label": "Moment of the step",
      oninput: () => goTo(Number(this.slider.value)) });
    this.play = h("button", { type: "button", onclick: () => this.run() }, "Play the step");
    this.heads = data.moments.map((one, i) => h("th", { scope: "col" },
      h("button", { type: "button", title: one.title, "aria-label": `${one.moment}: ${one.title}`, onclick: () => goTo(i) }, one.moment)));
    this.table = h("table", { class: "grid" },
      h("caption", { class: "visually-hidden" }, "Which tensor is in memory at the end of which moment"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "tensor"), h("th", { scope: "col", class: "n size" }, "MiB"), this.heads)),
      h("tbody", {}, data.tensors.map((row) => h("tr", { class: row.kind },
        h("th", { scope: "row" }, swatch(row.kind), " ", h("span", { class: "long" }, written(NAMES[row.name] ?? row.name)), h("span", { class: "short" }, written(SHORT[row.name] ?? row.name))),
        h("td", { class: "n size" }, gib(row.bytes, 0).replace(" MiB", "")),
        row.cells.map((cell) => h("td", { class: `cell ${cell}` }, h("span", {},
          h("span", { class: "visually-hidden" }, cell === "held" ? "in memory" : cell === "passing" ? "comes and goes" : "no")))))),
      ),
      h("tfoot", {}, h("tr", { class: "heights" }, h("th", { scope: "row" }, h("span", { class: "long" }, "in use, MiB: highest,", h("br"), "and stronger: at the end"), h("span", { class: "short" }, "MiB")), h("td", { class: "size" }),
        data.moments.map((one) => h("td", {}, h("span", { class: "height", style: `--peak:${(one.peak / top) * 100}%;--end:${(one.end / top) * 100}%` }, gib(one.peak, 0).replace(" MiB", "")))))));
    this.words = h("div", { class: "words" });
    this.answer = h("p", { class: "answer" }, "Press a moment to guess; the heights then appear below the grid.");
    this.guesses = h("div", { class: "row guesses", role: "group", "aria-label": "Guess the highest moment" },
      data.moments.map((one) => h("button", { type: "button", "aria-label": `${one.moment}: guess ${one.title}`, onclick: () => this.reveal(one.moment) }, one.moment)));
    this.replaceChildren(h("div", { class: "controls" }, this.guesses, this.answer),
      scrolls(h("div", { class: "scroll" }, this.table), "Tensors by moments"),
      h("div", { class: "controls row slide" }, this.play, this.slider), this.words);
    this.addEventListener("keydown", (event) => this.key(event));
    on("moment", () => this.draw(true));
    this.draw(false);
  }

  key(event) {
    if (event.target === this.slider || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = this.data.moments.length - 1;
    const to = { ArrowRight: this.at + 1, ArrowLeft: this.at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    goTo(Math.max(0, Math.min(last, to)));
  }

  reveal(name) {
    this.guess = name;
    const best = this.data.peak.moments;
    const right = best.includes(name);
    this.classList.add("revealed");
    for (const button of this.guesses.children) button.setAttribute("aria-pressed", String(button.textContent === name));
    const first = this.data.moments.find((one) => one.moment === best[0]);
    const names = (what) => first[what].map((item) => item.name);
    const made = names("made");
    const kept = new Set(this.data.tensors.filter((row) => row.kind === "activations").map((row) => row.name));
    const list = (all) => (all.length > 1 ? `${all.slice(0, -1).join(", ")} and ${all.at(-1)}` : all.join());
    const where = best.map((one) => this.data.moments.find((m) => m.moment === one).title).join(", and again in ");
    this.answer.replaceChildren(h("strong", { class: right ? "good" : "" }, right ? "Yes. " : "Not quite. "),
      ...written(`The highest point is in ${where}: ${gib(this.data.peak.bytes, 1)}. What forward kept is still there, and ${list(made)} ${made.length > 1 ? "come" : "comes"} on top before ${list(names("freed").filter((name) => kept.has(name)))} can go.`));
    goTo(this.data.moments.findIndex((one) => one.moment === best[0]));
  }

  run() {
    clearInterval(this.timer);
    const start = this.at >= this.data.moments.length - 1 ? 0 : this.at;
    goTo(start);
    this.timer = setInterval(() => {
      if (this.at >= this.data.moments.length - 1 || !this.isConnected) return clearInterval(this.timer);
      goTo(this.at + 1);
    }, 900);
  }

  draw(moving) {
    this.at = Math.max(0, Math.min(state.moment, this.data.moments.length - 1));
    const one = this.data.moments[this.at];
    this.slider.value = String(this.at);
    this.slider.setAttribute("aria-valuetext", `${one.moment}: ${one.title}. ${this.at ? "Allocated" : "Already there"}: ${spoken(one.made)}; freed ${spoken(one.freed)}`);
    this.heads.forEach((head, i) => head.firstElementChild.setAttribute("aria-current", String(i === this.at)));
    for (const row of this.table.tBodies[0].rows) [...row.cells].slice(2).forEach((cell, i) => cell.classList.toggle("now", i === this.at));
    const list = (label, items) => h("p", { class: "field-out" }, h("span", { class: "label" }, label),
      items.length ? items.map((item) => h("span", { class: "chip" }, swatch(item.kind), " ", written(item.name), " ", h("span", { class: "quiet" }, gib(item.bytes, 1)))) : "nothing");
    this.words.replaceChildren(h("p", {}, h("strong", {}, `${one.moment}, ${one.title}. `), one.words), list(this.at ? "allocated" : "already there", one.made), list("freed", one.freed));
    if (moving) announce(`${one.title}: ${this.at ? "allocated" : "already there"} ${spoken(one.made)}; freed ${spoken(one.freed)}`);
  }
}
customElements.define("pm-grid", Grid);
export { title };
