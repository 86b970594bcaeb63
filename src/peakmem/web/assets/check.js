/** Section 8: the count against a real run. What cannot have been measured is said beside its field, and not drawn. */
import { announce, gib, h, invalid, kinds, letter, scrolls, swatch, title } from "./format.js";
import { on, state } from "./store.js";

const GIB = 2 ** 30;
const ROUNDED = 0.011 * GIB; // figures with two digits after the point
const MOST = 2 ** 20 * GIB;

export class Check extends HTMLElement {
  show() {
    const code = this.querySelector("code").textContent; // the page holds it, for readers without scripts
    this.inputs = Object.fromEntries(["allocated", "reserved", "device"].map((name) => [name,
      h("input", { type: "number", min: 0, step: "any", inputmode: "decimal", name: `measured-${name}`, oninput: () => this.draw() })]));
    const copied = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(code).then(() => announce("Code copied"), () => announce("Select the code and copy it")) }, "Copy the code");
    this.bars = h("div", { class: "check-bars" });
    this.verdict = h("p", { class: "verdict", "aria-live": "polite" });
    this.replaceChildren(scrolls(h("pre", {}, h("code", {}, code)), "The code"), h("p", { class: "controls" }, copied),
      h("div", { class: "controls fields measured" }, Object.entries(this.inputs).map(([name, input]) => {
        input.setAttribute("aria-describedby", `said-${name}`);
        return h("div", { class: "slot" }, h("div", { class: "field" }, h("label", {}, h("span", {}, `${name}, GiB`), input)), h("p", { class: "small said", id: `said-${name}` }));
      })), this.bars, this.verdict);
    on("details", () => this.draw());
    on("room", () => this.draw());
    on("measured", () => {
      for (const [name, input] of Object.entries(this.inputs)) input.value = state.measured?.[name] ? (state.measured[name] / 2 ** 30).toFixed(2) : "";
      this.draw();
    });
    this.draw();
  }
  /** Bytes of what can have been measured; beside each of the others stands why it cannot. */
  given(room) {
    const found = {};
    let below = ["", 0];
    for (const [name, input] of Object.entries(this.inputs)) {
      const bytes = Number(input.value) * GIB;
      const why = input.value === "" && !input.validity.badInput ? ""
        : !(bytes > 0) ? "give what was measured, a number of GiB above 0."
        : bytes > MOST ? "that is more than any machine has; give GiB, not bytes."
        : room && bytes > room.capacity + ROUNDED ? `${room.gpu} has ${gib(room.capacity)}; choose the GPU that it ran on, and give GiB.`
        : bytes < below[1] - ROUNDED ? `it holds what is ${below[0]}, so it cannot be below ${gib(below[1])}.` : "";
      const wrong = Boolean(why);
      invalid(input, wrong);
      const beside = input.closest(".slot");
      beside.classList.toggle("wrong", wrong);
      beside.querySelector(".said").textContent = wrong ? `${name}: ${why}` : "";
      found[name] = wrong ? 0 : bytes;
      if (found[name]) below = [name, bytes];
    }
    return found;
  }

  draw() {
    if (!state.answer) return;
    const { ledger } = state.answer;
    const room = state.room ?? state.answer.room;
    const peak = ledger.peak.bytes;
    const given = this.given(room);
    const used = Math.max(peak, room?.used ?? 0);
    const workspace = room?.allocated ? room.allocated - peak : 0;
    const top = Math.max(used + (room?.context[1] ?? 0), ...Object.values(given), 1) * 1.02;
    const bar = (name, parts, words) => h("div", { class: "bar" }, h("span", { class: "name" }, name),
      h("span", { class: "track", role: "img", "aria-label": `${name}: ${words}` }, parts.filter(([bytes]) => bytes > 0).map(([bytes, kind]) => h("span", { class: `part ${kind}`, style: `width:${((bytes / top) * 100).toFixed(2)}%`, title: gib(bytes) }, kind !== "plain" && bytes / top > 0.05 ? letter(kind) : ""))),
      h("span", { class: "n" }, words));
    const byKind = kinds().map((kind) => [ledger.peak.by_kind[kind] ?? 0, kind]);
    const rows = [bar("counted", byKind, gib(peak))];
    if (room) rows.push(bar(`expected on ${room.gpu}`, [...byKind, [workspace, "temporary"], [used - peak - workspace, "cache"], [room.context[1], "context"]], `up to ${gib(used + room.context[1])}`));
    const told = [];
    if (given.allocated) {
      rows.push(bar("allocated", [[Math.min(peak, given.allocated), "plain"], [given.allocated - peak, "temporary"]], gib(given.allocated)));
      const apart = given.allocated - peak;
      const failed = state.measured && Math.abs(state.measured.allocated - given.allocated) < 2 ** 23;
      if (failed && apart < 0) told.push(`When the run failed it had ${gib(given.allocated)} allocated: ${gib(-apart)} below the peak that is counted.`);
      else told.push(`Allocated is ${gib(Math.abs(apart))} ${apart < 0 ? "below" : "above"} the count (${((100 * apart) / peak).toFixed(1)} %)${apart < 0 ? ": something that we count was not there; compare settings and versions" : workspace ? `; expected for kernel workspaces and rounding: ${gib(workspace)}` : ": kernel workspaces, and anything else the process holds"}.`);
    }
    if (given.reserved) {
      rows.push(bar("reserved", [[given.allocated || Math.min(peak, given.reserved), "plain"], [given.reserved - (given.allocated || peak), "cache"]], gib(given.reserved)));
      if (!given.allocated && given.reserved < peak) told.push(`Reserved is ${gib(peak - given.reserved)} below the count: something that we count was not there; compare settings and versions.`);
      else told.push(`PyTorch’s cache: ${gib(Math.max(0, given.reserved - (given.allocated || peak)))} reserved and not in use at once${room?.reserved ? `; expected: ${gib(room.reserved - room.allocated)}` : ""}.`);
    }
    if (given.device) {
      const inner = given.reserved || given.allocated || peak;
      rows.push(bar("device", [[Math.min(inner, given.device), "plain"], [given.device - inner, "context"]], gib(given.device)));
      if (inner === peak && given.device < peak) told.push(`The device’s number is ${gib(peak - given.device)} below the count: something that we count was not there; compare settings and versions.`);
      else told.push(`Context and other processes: ${gib(Math.max(0, given.device - inner))}${room ? `; usual for ${room.gpu}: ${gib(room.context[0])} to ${gib(room.context[1])}` : ""}.`);
    }
    this.bars.replaceChildren(...rows, h("p", { class: "small" }, swatch("temporary"), " workspaces  ", swatch("cache"), ` ${title("cache")}  `, swatch("context"), ` ${title("context")}`));
    this.verdict.textContent = told.join(" ");
  }
}
customElements.define("pm-check", Check);
