/** A word with dots below it says what it means when it is pressed; Escape or a press elsewhere closes. */
import { h, announce } from "./format.js";

let words = {};
let card = null;
let opener = null;
let from = 0;

/** Every marked word of the page becomes a button. */
export function explain(found) {
  words = found;
  card = h("div", { id: "term-card", popover: "auto", role: "note" });
  card.addEventListener("beforetoggle", (event) => { if (event.newState === "closed") opener?.setAttribute("aria-expanded", "false"); });
  document.querySelector("main").append(card);
  for (const one of document.querySelectorAll("dfn[data-term]")) one.replaceWith(term(one.dataset.term, one.textContent));
}

/** `code` and *stress* of a definition. */
const written = (text) => text.split(/(`[^`]+`|\*[^*]+\*)/).map((part) => (part[0] === "`" ? h("code", {}, part.slice(1, -1)) : part[0] === "*" ? h("em", {}, part.slice(1, -1)) : part));

/** A button that explains a word of the glossary; plain text where the glossary has none. */
export function term(name, text = name) {
  if (!words[name]) return text;
  const made = h("button", { type: "button", class: "term", "aria-expanded": "false", "aria-label": `${text}: what is that?`, onclick: () => show(made, name) }, text);
  return made;
}

/** The word of the glossary that a longer name holds: "full checkpointing" is about checkpointing. */
export function about(name) {
  const bare = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");
  return Object.keys(words).filter((word) => bare(name).includes(bare(word))).sort((a, b) => b.length - a.length)[0];
}

function show(button, name) {
  if (opener === button && card.matches(":popover-open")) return card.hidePopover();
  card.hidePopover?.();
  opener = button;
  from = scrollY;
  card.replaceChildren(h("b", {}, name), " ", written(words[name]));
  card.showPopover({ source: button });
  const at = button.getBoundingClientRect(), size = card.getBoundingClientRect();
  const below = at.bottom + 6 + size.height < innerHeight;
  card.style.left = `${Math.max(8, Math.min(innerWidth - size.width - 8, at.left))}px`;
  card.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
  button.setAttribute("aria-expanded", "true");
  announce(`${name}: ${card.textContent.slice(name.length + 1)}`);
}
// It stands where it was opened; who reads on has read it.
addEventListener("scroll", () => { if (card?.matches(":popover-open") && Math.abs(scrollY - from) > 40) card.hidePopover(); }, { passive: true });
