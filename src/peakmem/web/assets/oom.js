/** An out-of-memory message, pasted: read by the engine, told in words; what it measured goes where it is compared. */
import { h, announce, invalid } from "./format.js";
import { ask, mode } from "./ask.js";
import { change, on, request, state, tellAll } from "./store.js";
import { called, stated } from "./exports.js";
import { words } from "./said.js";

const ABOUT = { capacity: "why", limit: "why", pieces: "why", others: "other processes", context: "context", count: "against the count", tensor: "which tensor" };
const EXAMPLE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which 371.12 MiB is free. Including non-PyTorch memory, this process has 78.82 GiB memory in use. Of the allocated memory 77.61 GiB is allocated by PyTorch, and 612.40 MiB is reserved by PyTorch but unallocated.";

/** Of a long log the message, and what stands before it: a request has an end. */
function around(text) {
  if (text.length < 3e5) return text;
  const at = Math.max(0, text.search(/out of memory/i));
  return text.slice(Math.max(0, at - 2e5), at + 5e4);
}

export class OutOfMemory extends HTMLElement {
  show() {
    this.box = h("textarea", { name: "message", rows: 4, spellcheck: "false", autocomplete: "off", "aria-describedby": "oom-hint", placeholder: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …", oninput: () => this.soon() });
    this.found = h("div", { class: "diagnosis", "aria-live": "polite" });
    this.replaceChildren(h("label", { class: "field controls" }, h("span", {}, "The message, or the log that it stands in"), this.box),
      h("p", { class: "small controls", id: "oom-hint" }, "Or paste it anywhere on this page. It is read where the calculator runs; no other site sees it. ",
        h("button", { type: "button", onclick: () => { this.box.value = EXAMPLE; this.read(); } }, "Show an example")), this.found);
    document.addEventListener("paste", (event) => {
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (/** @type {HTMLElement} */ (event.target).closest?.("input, textarea") || !/out of memory/i.test(text)) return;
      event.preventDefault();
      this.box.value = text;
      document.getElementById("oom")?.scrollIntoView();
      this.box.focus({ preventScroll: true });
      this.read();
    });
    on("details", () => { if (this.box.value.trim()) this.read(); });
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), 300);
  }

  async read() {
    const text = this.box.value;
    if (!text.trim()) {
      this.found.replaceChildren();
      return this.measured(null);
    }
    const answer = await ask(request({ ask: "diagnose", message: around(text) }), "diagnose");
    if (answer === undefined || text !== this.box.value) return;
    invalid(this.box, answer?.error);
    if (!answer || answer.error) {
      const none = mode === "live" ? "It is read as soon as the calculator is there." : "This copy holds answers made beforehand and cannot read it. Run: peakmem diagnose run.log";
      this.found.replaceChildren(h("p", { class: answer ? "bad" : "" }, answer ? words(answer) : none));
      return;
    }
    this.tell(answer);
    this.measured(answer);
    if (text === this.last) return;
    this.last = text; // from then on the GPU is the reader's choice
    announce(answer.findings[0]?.text ?? "");
    if (answer.gpu !== state.settings.gpu) change({ settings: { gpu: answer.gpu } }, { push: true });
  }

  measured(answer) {
    const found = answer && { allocated: answer.allocated, reserved: answer.reserved, device: answer.device };
    if (JSON.stringify(found) === JSON.stringify(state.measured)) return;
    state.measured = found;
    tellAll("measured");
  }

  tell(answer) {
    const gpus = answer.gpus.length > 1 ? h("p", { class: "controls row small" }, "GPUs with this much memory: ", answer.gpus.map((name) =>
      h("button", { type: "button", "aria-pressed": String(state.settings.gpu === name), onclick: () => change({ settings: { gpu: name } }, { push: true }) }, name))) : "";
    let before = "";
    const item = (one) => {
      const label = ABOUT[one.about] === before ? "" : ABOUT[one.about];
      before = ABOUT[one.about];
      return h("div", { class: "finding", "data-about": one.about }, h("dt", {}, label), h("dd", {}, one.text));
    };
    this.found.replaceChildren(h("p", {}, answer.asked), h("dl", { class: "findings" }, answer.findings.map(item)), gpus,
      h("h3", {}, "What to do"), h("ul", {}, answer.advice.map((text) => h("li", {}, text))),
      h("p", {}, "Compared with ", h("b", {}, called()), ` (${stated()}): set `, h("a", { href: "#size" }, "what ran"), ", try the ", h("a", { href: "#levers" }, "levers"), " on it, see the ", h("a", { href: "#check" }, "figures beside the count"), "."));
  }
}
customElements.define("pm-oom", OutOfMemory);
