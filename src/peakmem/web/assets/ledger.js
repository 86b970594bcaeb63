/** Section 6: the largest of each kind with its rule. Section 7: the levers. Section 8: against a real run. */
import { count, gib, h, kinds, letter, letters, moment, named, scrolls, signed, swatch, title, announce } from "./format.js";
import { ask, mode } from "./ask.js";
import { about as wordIn, term } from "./terms.js";
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
      ...(ledger.notes.length ? [h("details", {}, h("summary", {}, "What was assumed"), h("ul", { class: "small" }, ledger.notes.map((note) => h("li", {}, note))))] : []));
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
      this.replaceChildren(h("p", {}, answer?.error ?? (mode === "live" ? "The levers are tried as soon as the calculator is there." : "This copy has not tried the levers on this configuration. Run peakmem serve for any.")));
      return;
    }
    this.answer = answer;
    const best = Math.max(answer.before, 1);
    const phase = (at) => at.split("/").slice(0, 2).join("/");
    /** What it does to the kinds, also where the peak is then made of others. */
    const change = (one) => {
      const fallen = kinds().map((kind) => [kind, answer.largest[kind] ?? 0, one.largest[kind] ?? 0]).filter(([, a, b]) => b < 0.99 * a).sort((x, y) => y[1] - y[2] - x[1] + x[2]);
      const elsewhere = phase(one.moment) !== phase(answer.moment);
      return [fallen.slice(0, 3).map(([kind, a, b], i) => [i ? ", " : "", `${title(kind)} ${gib(a)} → ${gib(b)}`]), elsewhere && one.moment ? `; the peak is then ${moment(one.moment)}` : "", ". "];
    };
    /** What lies elsewhere is not saved: it is moved. */
    const beside = (one) => [["host", "the host’s memory"], ["disk", "the disk"]].filter(([name]) => one[name] > answer[name]).map(([name, where]) => `${gib(one[name])} then lie in ${where}. `);
    const row = (one) => {
      const about = answer.levers.find((lever) => lever.name === one.lever);
      const button = h("button", { type: "button", disabled: Boolean(one.refused), "data-lever": one.lever,
        onclick: () => { take({ settings: numbers(one.settings) }, { push: true }); announce(`taken: ${one.lever}`); } }, one.lever);
      return h("li", { class: "lever", "data-name": one.lever }, h("div", { class: "take" }, button, h("span", { class: "small" }, about ? ["shrinks ", about.shrinks, cited(about.source), " ", meant(about.name)] : "the fewest that make it fit")),
        h("div", { class: "before" }, gauge(one.by_kind, best),
          h("span", { class: "numbers" }, one.refused ? "refused" : [h("b", {}, gib(one.after)), ` ${signed(one.after - one.before)}`, one.fits && state.answer.room ? h("span", { class: "good" }, " fits") : ""])),
        h("p", { class: "small" }, one.refused || [change(one), beside(one), `Costs ${one.costs || "what each of them costs"}. `, one.flags.split(/ (?=--)/).map((flag) => [h("code", {}, flag), " "])]));
    };
    /** Every lever keeps its place, also one that is taken: nothing moves, and the keyboard's focus has where to stay. */
    const idle = (lever) => h("li", { class: "lever idle", "data-name": lever.name, tabindex: -1 }, h("div", { class: "take" }, h("b", {}, lever.name), h("span", { class: "small" }, "shrinks ", lever.shrinks, cited(lever.source), " ", meant(lever.name))),
      h("p", { class: "small" }, "Already taken, or worth nothing here."));
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

export class Check extends HTMLElement {
  show() {
    const code = this.querySelector("code").textContent; // the page holds it, for readers without scripts
    this.inputs = Object.fromEntries(["allocated", "reserved", "device"].map((name) => [name,
      h("input", { type: "number", min: 0, step: "any", inputmode: "decimal", name: `measured-${name}`, oninput: () => this.draw() })]));
    const copied = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(code).then(() => announce("Code copied"), () => announce("Select the code and copy it")) }, "Copy the code");
    this.bars = h("div", { class: "check-bars" });
    this.verdict = h("p", { class: "verdict", "aria-live": "polite" });
    this.replaceChildren(scrolls(h("pre", {}, h("code", {}, code)), "The code"), h("p", { class: "controls" }, copied),
      h("div", { class: "controls fields measured" }, Object.entries(this.inputs).map(([name, input]) => h("label", { class: "field" }, h("span", {}, `${name}, GiB`), input))), this.bars, this.verdict);
    on("details", () => this.draw());
    on("room", () => this.draw());
    on("measured", () => {
      for (const [name, input] of Object.entries(this.inputs)) input.value = state.measured?.[name] ? (state.measured[name] / 2 ** 30).toFixed(2) : "";
      this.draw();
    });
    this.draw();
  }
  draw() {
    if (!state.answer) return;
    const { ledger } = state.answer;
    const room = state.room ?? state.answer.room;
    const peak = ledger.peak.bytes;
    const wrong = Object.entries(this.inputs).filter(([, input]) => input.validity.badInput || Number(input.value) < 0).map(([name]) => name);
    const given = Object.fromEntries(Object.entries(this.inputs).map(([name, input]) => [name, Math.max(0, Number(input.value)) * 2 ** 30]));
    const used = Math.max(peak, room?.used ?? 0);
    const workspace = room?.allocated ? room.allocated - peak : 0;
    const top = Math.max(used + (room?.context[1] ?? 0), ...Object.values(given), 1) * 1.02;
    const bar = (name, parts, words) => h("div", { class: "bar" }, h("span", { class: "name" }, name),
      h("span", { class: "track", role: "img", "aria-label": `${name}: ${words}` }, parts.filter(([bytes]) => bytes > 0).map(([bytes, kind]) => h("span", { class: `part ${kind}`, style: `width:${((bytes / top) * 100).toFixed(2)}%`, title: gib(bytes) }, kind !== "plain" && bytes / top > 0.05 ? letter(kind) : ""))),
      h("span", { class: "n" }, words));
    const byKind = kinds().map((kind) => [ledger.peak.by_kind[kind] ?? 0, kind]);
    const rows = [bar("counted", byKind, gib(peak))];
    if (room) rows.push(bar(`expected on ${room.gpu}`, [...byKind, [workspace, "temporary"], [used - peak - workspace, "cache"], [room.context[1], "context"]], `up to ${gib(used + room.context[1])}`));
    const told = wrong.map((name) => `${name}: give what was measured, a number of GiB above 0.`);
    if (given.allocated) {
      rows.push(bar("allocated", [[Math.min(peak, given.allocated), "plain"], [given.allocated - peak, "temporary"]], gib(given.allocated)));
      const apart = given.allocated - peak;
      const failed = state.measured && Math.abs(state.measured.allocated - given.allocated) < 2 ** 23;
      if (failed && apart < 0) told.push(`When the run failed it had ${gib(given.allocated)} allocated: ${gib(-apart)} below the peak that is counted.`);
      else told.push(`Allocated is ${gib(Math.abs(apart))} ${apart < 0 ? "below" : "above"} the count (${((100 * apart) / peak).toFixed(1)} %)${apart < 0 ? ": something that we count was not there; compare settings and versions" : workspace ? `; expected for kernel workspaces and rounding: ${gib(workspace)}` : ": kernel workspaces, and anything else the process holds"}.`);
    }
    if (given.reserved) {
      rows.push(bar("reserved", [[given.allocated || Math.min(peak, given.reserved), "plain"], [given.reserved - (given.allocated || peak), "cache"]], gib(given.reserved)));
      told.push(`PyTorch’s cache: ${gib(Math.max(0, given.reserved - (given.allocated || peak)))} reserved and not in use at once${room?.reserved ? `; expected: ${gib(room.reserved - room.allocated)}` : ""}.`);
    }
    if (given.device) {
      const inner = given.reserved || given.allocated || peak;
      rows.push(bar("device", [[Math.min(inner, given.device), "plain"], [given.device - inner, "context"]], gib(given.device)));
      told.push(`Context and other processes: ${gib(Math.max(0, given.device - inner))}${room ? `; usual for ${room.gpu}: ${gib(room.context[0])} to ${gib(room.context[1])}` : ""}.`);
    }
    this.bars.replaceChildren(...rows, h("p", { class: "small" }, swatch("temporary"), " workspaces  ", swatch("cache"), ` ${title("cache")}  `, swatch("context"), ` ${title("context")}`));
    this.verdict.textContent = told.join(" ");
  }
}
customElements.define("pm-check", Check);
