/** Section 5: settings on one side, the answer in sight on the other. */
import { bare, count, fit, gib, h, kinds, letters, moment, momentTitle, named, old, people, scrolls, swatch, title, announce } from "./format.js";
import { ask, mode } from "./ask.js";
import { atRest, current, goTo, on, pin, request, state, tellAll } from "./store.js";
import { draw } from "./chart.js";
import { Form } from "./form.js";
import { Timeline } from "./timeline.js";
import { called, stated, tools } from "./exports.js";
import { linkedMistake, words } from "./said.js";
import { term } from "./terms.js";

/** Marks of the pictures: where they are drawn, how the key shows them, what they mean. */
const MARKS = [["line.end", "notch", "left when the moment ends"], [".beyond", "dotted", "reserved by PyTorch and not filled"], ["line.limit", "dashed", "what the GPU has for it"], [".behind", "outline", "pinned"], [".top", "crest", "the peak"]];

/** What the header covers of the window, where it stays in sight. */
function above() {
  const header = document.querySelector("header");
  return getComputedStyle(header).position === "sticky" ? header.offsetHeight : 0;
}

export class Calculator extends HTMLElement {
  show(tables) {
    this.form = new Form(tables);
    this.letters = tables.legend;
    this.form.onerror = (mistake) => this.fail(mistake);
    this.headline = h("p", { class: "headline" });
    this.about = h("p", { class: "about quiet" });
    this.fits = h("p", { class: "fits" });
    this.beside = h("p", { class: "beside quiet" });
    this.error = h("p", { class: "error bad", role: "alert" });
    this.picture = h("div", { class: "picture" });
    this.moments = h("div", { class: "moments", role: "group", "aria-label": "Look at one moment" });
    this.legend = h("div", { class: "legend", role: "group", "aria-label": "Kinds: one dims the others" });
    this.view = "bars";
    this.views = Object.entries({ bars: "By moment", time: "Over time", table: "Numbers" }).map(([name, text]) =>
      h("button", { type: "button", "aria-pressed": String(name === "bars"), "data-view": name, onclick: () => this.turn(name) }, text));
    this.time = h("div", { class: "timeline", hidden: true, ondrawn: () => this.marks() });
    this.numbers = scrolls(h("div", { class: "scroll numbers", hidden: true }), "Numbers");
    this.detail = h("div", { class: "detail" });
    this.largest = h("div", { class: "largest" });
    this.pinned = h("div", { class: "pinned" });
    this.pinner = h("button", { type: "button", "aria-pressed": "false", onclick: () => pin(!state.pinned) }, "Pin this, to compare");
    this.replaceChildren(h("div", { class: "calculator" },
      h("div", { class: "settings" }, this.form.element),
      h("div", { class: "result" },
        this.sticky = h("div", { class: "sticky" }, this.headline, this.about, this.fits, this.beside, this.error, old(),
          h("div", { class: "row tools views" }, this.views), h("div", { class: "stage" }, this.picture, this.moments, this.time, this.numbers), this.legend,
          this.key = h("p", { class: "small marks" }),
          h("div", { class: "row tools take" }, this.pinner, tools(() => this.shown(), () => this.view)), this.detail))),
      this.pinned, h("div", {}, old(), this.largest));
    // Higher than the window: it stops where its lower end is seen, so that nothing in it stays out of reach.
    const stop = () => { this.sticky.style.top = `${Math.min(above(), innerHeight - this.sticky.offsetHeight)}px`; };
    new ResizeObserver(stop).observe(this.sticky);
    addEventListener("resize", () => { stop(); this.paint(); });
    on("change", () => this.form.sync());
    on("answer", () => this.draw());
    on("details", () => this.details());
    on("moment", () => { this.paint(); this.tell(); });
    for (const name of ["change", "answer", "error", "pin"]) on(name, () => { this.pinner.disabled = !state.pinned && !current(); });
    on("pin", () => { this.paint(); this.compare(); });
    on("error", () => this.fail(state.error.unanswered ? { error: this.unanswered(), fields: [] } : state.error));
    atRest(() => this.retime());
    atRest(async (still) => {
      const answer = await ask(request({ ask: "refused" }), "refused");
      if (still()) this.form.refuses(answer?.refused ?? {}, answer?.only ?? {});
    });
    atRest((still) => this.rest(still));
    atRest(async (still) => {
      const answer = await ask(request({ ask: "beside" }), "beside");
      if (!answer || answer.error || !still()) return;
      this.known = answer.beside;
      this.judge();
    });
    new ResizeObserver(() => { if (state.answer && this.picture.clientWidth !== this.drawn) { this.paint(); this.retime(); } }).observe(this.picture);
    this.drop();
  }

  judge() {
    this.fits.replaceChildren(...this.verdict());
    this.beside.replaceChildren(...this.others());
  }

  unanswered() {
    return mode === "live" ? "The calculator is still loading; this answer comes as soon as it is there."
      : "This copy holds answers made beforehand, and this is none of them. Copy the command line below, or run: peakmem serve";
  }
  fail(mistake) {
    this.error.replaceChildren(...(mistake ? linkedMistake(mistake) : []));
    this.form.wrong(mistake);
  }

  drop() {
    const over = (on) => document.body.classList.toggle("dropping", on);
    addEventListener("dragover", (event) => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); over(true); } });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) over(false); });
    addEventListener("drop", (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      over(false);
      const files = [...event.dataTransfer.files];
      this.form.read(files.find((file) => file.name === "config.json") ?? files[0]);
      document.getElementById("size").scrollIntoView();
    });
  }

  draw() {
    const { ledger } = state.answer;
    this.fail(null);
    this.headline.replaceChildren(h("strong", { class: "peak" }, gib(ledger.peak.bytes)), h("span", {}, ` at the peak, ${moment(ledger.peak.moment)}.`));
    this.about.replaceChildren(h("span", {}, `${called()}, ${people(ledger.parameters.total)} parameters${ledger.parameters.trained === ledger.parameters.total ? "" : `, ${people(ledger.parameters.trained)} trained`}.`), h("span", { class: "stated" }, ` Settings: ${stated()}.`));
    this.best = "";
    this.known = null;
    this.judge();
    this.paint();
    this.settle();
  }
  settle() {
    if (!state.answer.idle) return;
    this.form.sized(state.answer.ledger.run.model);
    this.form.sync(); // the length of the sequence is the model's, where none is given
    this.form.idle(state.answer.parts.idle);
  }
  details() {
    this.settle();
    this.table();
    this.tell();
    this.lines();
    this.compare();
    announce(`peak ${gib(state.answer.ledger.peak.bytes)}`);
  }

  /** The verdict: of the tensors alone at once, with PyTorch's allocator as soon as the reader rests. */
  verdict() {
    const room = state.room ?? state.answer.room;
    if (!room) return ["Choose a GPU to see whether it fits. "];
    const head = room.fits ? h("strong", { class: "good" }, `Fits ${room.gpu} with ${gib(room.spare)} to spare. `)
      : room.close ? h("strong", {}, `Too close to tell on ${room.gpu}. `)
      : h("strong", { class: "bad" }, `Exceeds ${room.gpu} by ${gib(-room.spare)}. `);
    const base = `${gib(room.used)} ${room.reserved ? "reserved by PyTorch’s allocator" : "in tensors"}, and up to ${gib(room.context[1])} of CUDA context, of ${gib(room.capacity)}${room.sold ? " as sold" : ""}. `;
    const way = room.fits || state.settings.run === "inference" ? [] : [h("a", { href: "#levers" }, "What makes it smaller?"), " "];
    return [head, base, this.best ? `${this.best} ` : "", ...way, room.note ? h("span", { class: "quiet" }, `(${room.note}.) `) : ""];
  }
  others() {
    const beside = this.known ?? [];
    if (!beside.length) return [];
    const kept = state.answer.ledger.kinds.activations?.largest ?? 0;
    const names = { paper: ["by the ", term("paper"), " (34sbh + 5as²b)"], fused: ["with ", term("fused", "fused kernels")] };
    return ["Activations: ", h("b", {}, gib(kept)), " here", ...beside.flatMap((one) => [`, ${gib(one.activations)} `, ...(names[one.implementation] ?? ["in ", term(one.implementation)])]), "."];
  }

  /** Heights of chart and timeline: what the window leaves beside headline, legend and tools. */
  tall() {
    return this.picture.parentElement.clientWidth < 480 ? 200 : Math.max(200, Math.min(360, innerHeight - above() - 26 * parseFloat(getComputedStyle(document.documentElement).fontSize)));
  }
  svg() {
    const width = Math.max(280, this.picture.clientWidth || 640);
    return draw({ ledger: state.answer.ledger, room: state.room ?? state.answer.room, behind: state.pinned?.answer.ledger, chosen: this.index(), width, height: this.tall() });
  }
  /** What is looked at, to be taken along: a picture, and a table where it is not the one of the moments. */
  async shown() {
    if (this.view === "time") await this.retime("");
    return this.view === "time" && this.timeline ? this.timeline.taken() : { picture: this.svg() };
  }
  index() {
    const rows = state.answer.ledger.chart;
    return state.moment < 0 ? rows.findIndex((row) => row.peak === state.answer.ledger.peak.bytes) : Math.min(state.moment, rows.length - 1);
  }
  paint() {
    if (!state.answer) return;
    this.drawn = this.picture.clientWidth;
    this.picture.innerHTML = this.svg();
    const rows = state.answer.ledger.chart;
    if (this.moments.childElementCount !== rows.length || this.moments.textContent !== rows.map((row) => row.moment).join("")) {
      this.moments.replaceChildren(...rows.map((row, i) => h("button", { type: "button", "aria-label": `${row.moment}: look at ${momentTitle(row.moment)}`, onclick: () => goTo(i) }, row.moment)));
      this.legend.replaceChildren(...kinds().filter((kind) => rows.some((row) => row.peak_by_kind[kind])).map((kind) => {
        const dim = (to) => { document.documentElement.dataset.only = to; };
        return h("button", { type: "button", class: "key", "aria-pressed": "false", onmouseenter: () => dim(kind), onmouseleave: () => dim(this.only ?? ""), onfocus: () => dim(kind), onblur: () => dim(this.only ?? ""),
          onclick: (event) => { this.only = this.only === kind ? "" : kind; dim(this.only); for (const key of this.legend.children) key.setAttribute("aria-pressed", "false"); event.currentTarget.setAttribute("aria-pressed", String(this.only === kind)); } }, swatch(kind), ` ${title(kind)}`);
      }));
    }
    this.marks();
    [...this.moments.children].forEach((button, i) => button.setAttribute("aria-current", String(i === this.index())));
  }

  /** What the marks of the picture mean, of those that are in it. */
  marks() {
    const shown = { bars: this.picture, time: this.time }[this.view];
    const found = MARKS.filter(([part]) => shown?.querySelector(part));
    this.key.replaceChildren(...found.map(([, look, text]) => h("span", {}, h("span", { class: `mark ${look}` }), ` ${text}`)));
    this.legend.hidden = !shown;
  }

  /** One moment in numbers. */
  tell() {
    if (!state.answer) return;
    const { chart, totals } = state.answer.ledger;
    const row = chart[this.index()];
    this.detail.replaceChildren(h("h3", {}, `${row.moment}, ${momentTitle(row.moment)}: ${gib(row.peak)} at its highest, ${gib(row.end)} at its end`),
      h("div", { class: "chips" }, kinds().filter((kind) => row.peak_by_kind[kind]).map((kind) => h("span", { class: "chip" }, named(kind), " ", h("b", {}, gib(row.peak_by_kind[kind])))),
        ["host", "disk"].filter((place) => totals?.[place]).map((place) => h("span", { class: "chip" }, `on the ${place} `, h("b", {}, gib(totals[place]))))));
  }

  lines() {
    const { largest, more } = state.answer;
    this.largest.replaceChildren(h("h3", {}, "Largest tensors at the peak, and why they are alive"),
      scrolls(h("div", { class: "scroll" }, h("table", { class: "lines" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "n" }, "GiB"), h("th", { scope: "col" }, "tensor"), h("th", { scope: "col" }, "bytes of one"), h("th", { scope: "col" }, "why"))),
        h("tbody", {}, largest.map((line) => h("tr", {}, h("td", { class: "n", "data-label": "GiB" }, h("b", {}, bare(line.bytes))),
          h("td", { "data-label": "tensor", title: line.names.join("\n") }, swatch(line.kind), " ", h("code", {}, line.names[0]), line.names.length > 1 ? h("span", { class: "quiet" }, ` and ${line.names.length - 1} alike`) : "", line.at_peak > 1 ? `, × ${count(line.at_peak)}` : ""),
          h("td", { "data-label": "bytes of one" }, h("code", { title: `${line.substituted} = ${count(line.each)}` }, line.formula)), h("td", { class: "small why", "data-label": "why" }, line.why)))))), "Largest tensors at the peak"),
      h("p", { class: "small" }, `${count(more.lines)} smaller lines hold ${gib(more.bytes)} at the peak.`), letters(this.letters, largest.map((line) => line.formula)));
  }

  table() {
    const rows = state.answer.ledger.chart;
    const present = kinds().filter((kind) => rows.some((row) => row.peak_by_kind[kind]));
    this.numbers.replaceChildren(h("table", {}, h("caption", {}, "GiB (2³⁰ bytes) at the highest point of each moment, and in all at its end"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "moment"), present.map((kind) => h("th", { scope: "col", class: "n" }, title(kind))), h("th", { scope: "col", class: "n" }, "highest"), h("th", { scope: "col", class: "n" }, "at its end"))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.moment), present.map((kind) => h("td", { class: "n", "data-bytes": row.peak_by_kind[kind] ?? 0 }, bare(row.peak_by_kind[kind] ?? 0, 3))), h("td", { class: "n" }, h("b", {}, bare(row.peak, 3))), h("td", { class: "n" }, bare(row.end, 3)))))));
  }

  turn(name) {
    this.view = name;
    for (const button of this.views) button.setAttribute("aria-pressed", String(button.dataset.view === name));
    this.picture.classList.toggle("away", name !== "bars");
    this.moments.hidden = name !== "bars";
    this.time.hidden = name !== "time";
    this.numbers.hidden = name !== "table";
    fit(this.numbers);
    this.marks();
    tellAll("view");
    this.retime();
  }
  async retime(channel = "timeline") {
    if (this.view !== "time" || !state.answer) return;
    const answer = await ask(request({ timeline: true, lines: 0 }), channel);
    if (answer === undefined) return;
    this.timeline ??= new Timeline(this.time);
    if (!answer || answer.error) {
      this.timeline = null;
      this.time.replaceChildren(h("p", {}, answer ? words(answer) : this.unanswered()));
      return;
    }
    const room = state.answer.room;
    this.timeline.show(answer.timeline, Math.max(280, this.picture.parentElement.clientWidth), this.tall(), room ? room.capacity - room.context[1] : 0);
  }

  /** What takes many estimates: asked when the reader rests. */
  async rest(still) {
    if (!state.answer.room) return;
    const room = await ask(request({ ask: "room" }), "room");
    if (!room || room.error || !still()) return;
    state.room = room;
    tellAll("room");
    this.judge();
    this.paint();
    const question = request({ ask: "fit" });
    question.settings = { ...question.settings };
    delete question.settings.batch;
    const answer = await ask(question, "fit");
    if (!answer || answer.error || !still()) return;
    this.best = answer.batch ? `Largest batch that fits: ${count(answer.batch)}; one more is ${gib(answer.one_more_exceeds_by ?? 0)} too much.` : "No batch fits, not even 1.";
    this.judge();
  }

  compare() {
    this.pinner.setAttribute("aria-pressed", String(Boolean(state.pinned)));
    this.pinner.textContent = state.pinned ? "Unpin" : "Pin this, to compare";
    if (!state.pinned || !state.answer) return this.pinned.replaceChildren();
    const [a, b] = [state.pinned.answer.ledger, state.answer.ledger];
    const row = (label, x, y) => h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "n" }, gib(x)), h("td", { class: "n" }, gib(y)), h("td", { class: "n" }, x === y ? "same" : (y > x ? "+" : "−") + gib(Math.abs(y - x))));
    this.pinned.replaceChildren(h("h3", {}, "Pinned (outline) and now"), h("p", { class: "small" }, differences(state.pinned.request, request())),
      scrolls(h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["at the peak", "pinned", "now", "difference"].map((text, i) => h("th", { scope: "col", class: i ? "n" : "" }, text)))),
        h("tbody", {}, row("all", a.peak.bytes, b.peak.bytes), kinds().filter((kind) => a.peak.by_kind[kind] || b.peak.by_kind[kind]).map((kind) => row(named(kind), a.peak.by_kind[kind] ?? 0, b.peak.by_kind[kind] ?? 0))))), "Comparison"));
  }
}

function differences(a, b) {
  const flat = (r) => ({ model: r.model, ...r.sizes, ...r.settings });
  const [x, y] = [flat(a), flat(b)];
  const changed = [...new Set([...Object.keys(x), ...Object.keys(y)])].filter((name) => String(x[name]) !== String(y[name]));
  const files = x.model === y.model && a.config !== b.config ? [`model: ${x.model} → another file of this name`] : [];
  const told = [...files, ...changed.map((name) => `${name}: ${x[name] ?? "default"} → ${y[name] ?? "default"}`)];
  return told.length ? told.join(", ") : "Change a setting: the outline stays where it is.";
}
customElements.define("pm-calculator", Calculator);
