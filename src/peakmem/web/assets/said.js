/** What the engine says, in the words of the page: its settings have names and places here, and no flags. */
import { count, h } from "./format.js";

const NAMES = { gpu: "GPU", gpus: "GPUs", lora_rank: "LoRA rank", lora_targets: "LoRA targets", lora_dropout: "LoRA dropout", tied: "tied embeddings", hidden: "hidden size", heads: "attention heads", sequence: "sequence length", batch: "batch per GPU", kv_bits: "KV bits", kv_cache: "KV cache" };

export const label = (name) => NAMES[name] ?? name.replaceAll("_", " ");

/** A line in parts as text; a setting stands in it by its name. */
export const spelled = (parts) => parts.map((part) => (part.field ? label(part.field) : part)).join("");

const partsOf = (mistake) => mistake.parts ?? [mistake.error];
/** The line of a mistake as text. */
export const words = (mistake) => spelled(partsOf(mistake));

/** Parts with ways to the controls that they name. */
export const linked = (parts) => parts.map((part) => !part.field ? part : !document.getElementById(`set-${part.field}`) ? label(part.field)
  : h("a", { href: `#set-${part.field}`, "data-control": part.field }, label(part.field)));
export const linkedMistake = (mistake) => linked(partsOf(mistake));

/** Settings as they are taken: "checkpoint full, LoRA rank 16". */
export const listed = (settings) => Object.entries(settings).map(([name, value]) => `${label(name)} ${value}`).join(", ");

/** "1 sequence", "2 sequences", and a rank of 0 is none. */
export function amount(row, value) {
  if (!Number.isFinite(Number(value))) return String(value);
  if (row.name === "lora_rank") return Number(value) ? `rank ${count(value)}` : "off";
  const unit = Number(value) === 1 ? row.unit.replace(/(?<=ch|sh|x|s)es$|s$/, "") : row.unit;
  return `${count(value)} ${unit}`.trim();
}
