/** Live bytes over the step after every event: zoomable, peaks kept, layers named. */
import { gib, h, kinds, letter, moment, safe, title } from "./format.js";
import { axis } from "./chart.js";

const FINEST = 2; // pixels of a column: a single event stays visible
const LEFT = 44, TOP = 34, BOTTOM = 44, RIGHT = 12;

export class Timeline {
  constructor(host) {
    this.host = host;
    this.from = 0;
    this.to = 1;
    this.picture = h("div", { class: "time", tabindex: 0, role: "group", "aria-label": "Live bytes over the step. Arrow keys move, plus and minus zoom." });
    this.read = h("p", { class: "small read" }, " ");
    const tool = (text, label, what) => h("button", { type: "button", "aria-label": label, onclick: what }, text);
    this.tools = h("div", { class: "row tools" }, tool("+", "Zoom in", () => this.zoom(0.5)), tool("−", "Zoom out", () => this.zoom(2)),
      tool("←", "Earlier", () => this.move(-0.4)), tool("→", "Later", () => this.move(0.4)), tool("Whole step", "Whole step", () => this.look(this.first, this.count)),
      tool("Peak", "Peak: zoom to it", () => this.toPeak()));
    host.replaceChildren(this.tools, this.picture, this.read);
    this.picture.addEventListener("keydown", (event) => {
      const what = { ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Home: () => this.look(this.first, this.count), End: () => this.toPeak() }[event.key];
      if (what) { event.preventDefault(); what(); }
    });
    this.picture.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event));
    }, { passive: false });
    this.picture.addEventListener("pointermove", (event) => this.hover(event));
    this.picture.addEventListener("pointerdown", (event) => { this.drag = { x: event.clientX, from: this.from, to: this.to }; });
    addEventListener("pointerup", () => { this.drag = null; });
  }

  /** Columns of an answer: every kind's changes as a full row of amounts. */
  show(data, width, height, limit) {
    const same = data === this.data; // drawn anew in another size, what is looked at stays
    this.data = data;
    this.count = data.events;
    this.size = { width, height };
    this.limit = limit;
    this.total = new Float64Array(data.events);
    this.rows = kinds().filter((kind) => data.kinds[kind]).map((kind) => {
      const amounts = new Float64Array(data.events);
      const changes = data.kinds[kind];
      changes.forEach(([at, bytes], i) => amounts.fill(bytes, at, changes[i + 1]?.[0] ?? data.events));
      amounts.forEach((bytes, i) => { this.total[i] += bytes; });
      return { kind, amounts };
    });
    this.top = Math.max(...this.total.reduce((best, x) => (x > best[0] ? [x] : best), [1]));
    // Before the step nothing but its preparation happens: the picture starts where the step does.
    this.first = Math.max(0, (data.moments.find(([, name]) => !/^(start|load)\b/.test(name))?.[0] ?? 0) - 1);
    this.look(same ? this.from : this.first, same ? this.to : data.events);
  }

  look(from, to) {
    const span = Math.max(8, Math.min(this.count, to - from));
    this.from = Math.max(0, Math.min(this.count - span, Math.round(from)));
    this.to = this.from + Math.round(span);
    this.draw();
  }
  zoom(factor, around = (this.from + this.to) / 2) {
    const span = (this.to - this.from) * factor;
    const share = (around - this.from) / (this.to - this.from);
    this.look(around - span * share, around + span * (1 - share));
  }
  move(share) {
    const by = (this.to - this.from) * share;
    this.look(this.from + by, this.to + by);
  }
  toPeak() {
    const at = this.total.indexOf(this.top);
    this.look(at - 40, at + 40);
    this.tell(at);
  }
  at(event) {
    const box = this.picture.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / (this.size.width - LEFT - RIGHT);
    return this.from + Math.max(0, Math.min(0.9999, share)) * (this.to - this.from);
  }
  hover(event) {
    if (!this.data) return;
    if (this.drag) {
      const by = ((this.drag.x - event.clientX) / (this.size.width - LEFT - RIGHT)) * (this.drag.to - this.drag.from);
      if (Math.abs(by) >= 1) this.look(this.drag.from + by, this.drag.to + by);
    }
    this.tell(Math.floor(this.at(event)));
  }
  tell(at) {
    const parts = this.rows.filter((row) => row.amounts[at] > 0).map((row) => `${title(row.kind)} ${gib(row.amounts[at])}`);
    this.read.replaceChildren(h("b", {}, gib(this.total[at])), ` ${moment(this.name(at))} · ${parts.join(", ")}`);
  }
  name(at) {
    const list = this.data.moments;
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (list[middle][0] <= at) low = middle; else high = middle - 1;
    }
    return list[low][1];
  }

  /** One point for each column: the highest event in it, so that no peak is lost. */
  columns() {
    const many = Math.min(this.to - this.from, Math.floor((this.size.width - LEFT - RIGHT) / FINEST));
    const made = [];
    for (let i = 0; i < many; i++) {
      const a = this.from + Math.floor((i * (this.to - this.from)) / many);
      const b = Math.max(a + 1, this.from + Math.floor(((i + 1) * (this.to - this.from)) / many));
      let best = a;
      for (let k = a; k < b; k++) if (this.total[k] > this.total[best]) best = k;
      made.push(best);
    }
    return made;
  }

  draw() {
    const { width, height } = this.size;
    const area = height - TOP - BOTTOM;
    const most = this.limit && this.limit <= 2 * this.top ? Math.max(this.top, this.limit) : this.top;
    const y = (bytes) => (TOP + area * (1 - bytes / (most * 1.04))).toFixed(1);
    const columns = this.columns();
    const wide = (width - LEFT - RIGHT) / columns.length;
    const x = (i) => (LEFT + i * wide).toFixed(1);
    const scale = axis(most);
    const parts = scale.ticks.map(([bytes, text]) => `<line class="tick" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(bytes)}" y2="${y(bytes)}"/><text class="axis" x="${LEFT - 6}" y="${Number(y(bytes)) + 4}" text-anchor="end">${text}</text>`);
    parts.push(`<text class="axis" x="2" y="14">${scale.unit}</text>`);
    parts.push(...this.labels(x, columns, height)); // behind the bands: a line must not hide what is one event wide
    const marks = []; // over the bands, also over those beside them where one is too thin to hold its letter
    const below = new Float64Array(columns.length);
    for (const row of this.rows) {
      let up = "", down = "";
      const bands = [];
      columns.forEach((at, i) => {
        const low = y(below[i]);
        below[i] += row.amounts[at];
        const high = y(below[i]);
        bands.push([low - high, (Number(low) + Number(high)) / 2, i]);
        up += `${i ? "L" : "M"}${x(i)} ${high}L${x(i + 1)} ${high}`;
        down = `L${x(i + 1)} ${low}L${x(i)} ${low}${down}`;
      });
      parts.push(`<path class="seg area ${row.kind}${wide < 3 ? "" : " apart"}" d="${up}${down}Z"/>`);
      // Its letter: where it is tallest, and there as near the middle as can be.
      const most = Math.max(...bands.map(([tall]) => tall));
      const far = ([, , i]) => Math.abs(i - columns.length / 2);
      const [tall, middle, place] = bands.filter(([one]) => one > most - 1).reduce((best, one) => (far(one) < far(best) ? one : best));
      if (tall > 1) marks.push(`<text class="${tall > 16 ? "on" : "aside"} ${row.kind}" x="${x(place)}" y="${(middle + (tall > 16 ? 4 : 3)).toFixed(1)}" text-anchor="middle">${letter(row.kind)}</text>`);
    }
    const crest = columns.map((_, i) => `${i ? "L" : "M"}${x(i)} ${y(below[i])}L${x(i + 1)} ${y(below[i])}`).join("");
    parts.push(`<path class="crest" d="${crest}"/>`, ...marks);
    const summit = columns.findIndex((at) => this.total[at] === this.top);
    if (summit >= 0) { // it may be one event wide
      const [middle, high] = [Number(x(summit)) + wide / 2, Number(y(this.top))];
      const near = middle > width - 90 ? "end" : middle < LEFT + 60 ? "start" : "middle";
      parts.push(`<path class="top" d="M${middle - 5} ${high - 10}h10l-5 7z"/><text class="amount best" x="${middle.toFixed(1)}" y="${high - 14}" text-anchor="${near}">${gib(this.top, 1)}</text>`);
    }
    if (this.limit && this.limit <= most) parts.push(`<line class="limit" x1="${LEFT}" x2="${width - RIGHT}" y1="${y(this.limit)}" y2="${y(this.limit)}"/>`);
    const text = `Live bytes over the step, events ${this.from + 1} to ${this.to} of ${this.count}; highest ${gib(this.top)}`;
    this.picture.innerHTML = this.drawing = `<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${safe(text)}">${parts.join("")}</svg>`;
    this.host.dispatchEvent(new Event("drawn"));
  }

  /** The picture as it is zoomed; the table of the whole step. */
  taken() {
    const rows = Array.from(this.total, (bytes, at) => [at, this.name(at), bytes, ...this.rows.map((row) => row.amounts[at])]);
    return { picture: this.drawing, table: [["event", "moment", "bytes", ...this.rows.map((row) => row.kind)], ...rows], name: "-over-time" };
  }

  /** Two rows of names: phases, and layers or operations where there is room for them. */
  labels(x, columns, height) {
    const made = [];
    for (const [depth, row, size] of [[1, height - 10, 8], [2, height - 28, 6.6]]) {
      let start = 0, taken = 0;
      const cut = (i) => this.name(columns[i]).split("/").slice(depth - 1, depth === 1 ? 1 : this.to - this.from < 120 ? 3 : 2).join(" ").replace(/^(layers|h)\./, "");
      for (let i = 1; i <= columns.length; i++) {
        if (i < columns.length && cut(i) === cut(start)) continue;
        const name = cut(start);
        const centre = (Number(x(i)) + Number(x(start))) / 2, half = (name.length * size) / 2;
        if (name && centre - half > taken + 6 && (depth === 2 || Number(x(i)) - Number(x(start)) > 2 * half)) {
          made.push(`<text class="axis" x="${centre.toFixed(1)}" y="${row}" text-anchor="middle">${safe(name)}</text>`);
          taken = centre + half;
        }
        if (start) made.push(`<line class="tick" x1="${x(start)}" x2="${x(start)}" y1="${depth === 1 ? TOP : height - BOTTOM}" y2="${row + 3}"/>`);
        start = i;
      }
    }
    return made;
  }
}
