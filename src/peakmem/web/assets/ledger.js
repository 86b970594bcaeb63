/** Section 6: the largest of each kind with its rule. Section 7: the levers. */
import { count, gib, h, kinds, letter, letters, moment, named, scrolls, signed, title, announce } from "./format.js";
import { ask, mode } from "./ask.js";
import { about as wordIn, term } from "./terms.js";
import { linked, listed, words } from "./said.js";
import { atRest, change as take, on, request, state } from "./store.js";

export class Rules extends HTMLElement {
  show(tables) {
    this.legend = tables.legend;
    on("details", () => this.draw());
  }
  draw() {
    const { ledger } = state.answer;
    const cards = kinds().filter((kind) => ledger.kinds[kind]).map((kind) => {
      const one = ledger.kinds[kind];
      return h("article", { class: `rule ${kind}` },
        h("h3", {}, named(kind), h("span", { class: "n" }, gib(one.largest))),
        h("p", {}, ledger.chart.every((row) => row.by_kind[kind] === one.largest) ? "the same all the time." : `at most, ${moment(one.at)}.`),
        scrolls(h("p", { class: "formula" }, h("code", {}, one.formula)), `Rule of ${title(kind)}`),
        scrolls(h("p", { class: "formula numbers" }, "= ", h("code", {}, one.substituted), ` = ${count(one.largest)} bytes, tensors rounded up to 512`), `The same in numbers: ${title(kind)}`),
        h("p", { class: "small" }, state.answer.reasons?.[kind] ?? ""), h("p", { class: "small quiet" }, `mirrors ${one.source}`));
    });
    this.replaceChildren(h("div", { class: "rules" }, cards),
      letters(this.legend, Object.values(ledger.kinds).map((one) => one.formula)),
      ...(ledger.notes.length ? [h("details", {}, h("summary", {}, "What was assumed"), h("ul", { class: "small" }, state.answer.parts.notes.map((note) => h("li", {}, linked(note)))))] : []));
  }
}
customElements.define("pm-ledger", Rules);

export class Levers extends HTMLElement {
  show() {
    atRest(() => (this.seen || !this.answer ? this.fetch() : null));
    on("answer", () => { if (this.answer && this.name !== JSON.stringify(request())) this.classList.add("stale"); });
    // Many estimates: only where somebody looks.
    new IntersectionObserver((entries) => {
      this.seen = entries.some((entry) => entry.isIntersecting);
      if (this.seen && state.answer && this.name !== JSON.stringify(request())) this.fetch();
    }, { rootMargin: "300px" }).observe(this);
  }
  async fetch() {
    const name = JSON.stringify(request());
    const answer = await ask(request({ ask: "levers" }), "levers");
    if (answer === undefined || name !== JSON.stringify(request())) return;
    this.name = name;
    this.classList.remove("stale");
    if (!answer || answer.error) {
      this.replaceChildren(h("p", {}, answer ? words(answer) : (mode === "live" ? "The levers are tried as soon as the calculator is there." : "This copy has not tried the levers on this configuration. Run peakmem serve for any.")));
      return;
    }
    this.answer = answer;
    const best = Math.max(answer.before, 1);
    /** What falls and what rises, by kind, at its most; and where the peak then is. */
    const told = (word, rows) => (rows.length ? [h("b", {}, `${word}: `), rows.map(([kind, a, b]) => `${title(kind)} ${gib(a)} → ${gib(b)}`).join(", "), ". "] : []);
    const change = (one) => [told("Falls", one.falls), told("Rises", one.rises), one.elsewhere ? `The peak is then ${moment(one.elsewhere)}. ` : ""];
    /** Why a lever is not offered, with the number. */
    const why = (lever) => {
      if (lever.state === "apart") return `Not here: ${lever.why}.`;
      if (lever.refused) return `Taken. Without it this run is refused: ${words(lever)}`;
      const apart = lever.bytes - answer.before;
      if (lever.state === "taken") return apart > 0 ? [`Taken: it saves ${gib(apart)}. Without it the peak is ${gib(lever.bytes)}. `, change(lever)] : `Taken, and it saves nothing here: without it the peak is ${gib(lever.bytes)}, with it ${gib(answer.before)}.`;
      return [apart ? `Not worth it here: the peak would be ${gib(apart)} higher, ${gib(lever.bytes)}. ` : `Worth nothing here: the peak stays at ${gib(answer.before)}. `, change(lever)];
    };
    /** What lies elsewhere is not saved: it is moved. */
    const beside = (one) => [["host", "the host’s memory"], ["disk", "the disk"]].filter(([name]) => one[name] > answer[name]).map(([name, where]) => `${gib(one[name])} then lie in ${where}. `);
    const row = (one) => {
      const about = answer.levers.find((lever) => lever.name === one.lever);
      const button = h("button", { type: "button", disabled: Boolean(one.refused), "data-lever": one.lever,
        onclick: () => { take({ settings: numbers(one.settings) }, { push: true }); announce(`taken: ${one.lever}`); } }, one.lever);
      return h("li", { class: "lever", "data-name": one.lever }, h("div", { class: "take" }, button, h("span", { class: "small" }, about ? [cited(about.source), " ", meant(about.name)] : "the fewest that make it fit")),
        h("div", { class: "before" }, gauge(one.by_kind, best),
          h("span", { class: "numbers" }, one.refused ? "refused" : [h("b", {}, gib(one.after)), ` ${signed(one.after - one.before)}`, one.fits && state.answer.room ? h("span", { class: "good" }, " fits") : ""])),
        h("p", { class: "small" }, one.refused ? words(one) : [change(one), beside(one), `Costs ${one.costs || "what each of them costs"}. Sets ${listed(one.settings)}.`]));
    };
    /** Every lever keeps its place, also one that is taken: nothing moves, and the keyboard's focus has where to stay. */
    const idle = (lever) => h("li", { class: "lever idle", "data-name": lever.name, tabindex: -1 }, h("div", { class: "take" }, h("b", {}, lever.name), h("span", { class: "small" }, cited(lever.source), " ", meant(lever.name))),
      h("p", { class: "small", "data-state": lever.state }, why(lever)));
    const known = new Set(answer.levers.map((lever) => lever.name));
    const held = this.contains(document.activeElement) ? document.activeElement.closest("[data-name]")?.dataset.name ?? "" : null;
    this.replaceChildren(h("div", { class: "lever now", tabindex: -1 }, h("p", {}, h("b", {}, "As it is now"), ", and below with one lever each:"), h("div", { class: "before" }, gauge(answer.by_kind, best), h("span", { class: "numbers" }, h("b", {}, gib(answer.before))))),
      h("ul", { class: "levers" }, answer.levers.map((lever) => { const one = answer.tried.find((tried) => tried.lever === lever.name); return one ? row(one) : idle(lever); }),
        answer.tried.filter((one) => !known.has(one.lever)).map(row)));
    if (held === null) return;
    const place = [...this.querySelectorAll("[data-name]")].find((one) => one.dataset.name === held) ?? this.firstElementChild;
    (place.querySelector("[data-lever]:enabled") ?? place).focus({ preventScroll: true });
  }
}
/** The number of a paper in the list below. */
function cited(source) {
  const found = document.querySelector(`.references a[href="${source.match(/https:\S+/)?.[0]}"]`)?.closest("li");
  const number = found && [...found.parentElement.children].indexOf(found) + 1;
  return found ? h("a", { class: "ref", href: `#${found.id}`, "aria-label": `reference ${number}` }, `[${number}]`) : null;
}
/** What its name means, where the glossary says it. */
const meant = (name) => (wordIn(name) ? term(wordIn(name), "what is it?") : null);
const gauge = (byKind, best) => h("span", { class: "gauge", "aria-hidden": "true" }, kinds().filter((kind) => byKind[kind]).map((kind) =>
  h("span", { class: `seg ${kind}`, style: `width:${((byKind[kind] / best) * 100).toFixed(2)}%` }, byKind[kind] / best > 0.05 ? letter(kind) : "")));
const numbers = (settings) => Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, /^\d+$/.test(value) ? Number(value) : value]));
customElements.define("pm-levers", Levers);
