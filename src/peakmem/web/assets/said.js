/** What the engine says, in the words of the page: its settings have names and places here, and no flags. */
import { count, h } from "./format.js";

const NAMES = { gpu: "GPU", gpus: "GPUs", lora_rank: "LoRA rank", lora_targets: "LoRA targets", lora_dropout: "LoRA dropout", tied: "tied embeddings", hidden: "hidden size", heads: "attention heads", sequence: "sequence length", batch: "batch per GPU", kv_bits: "KV bits", kv_cache: "KV cache" };

export const label = (name) => NAMES[name] ?? name.replaceAll("_", " ");

/** Help of the command line: a setting is called by its flag, and lists have commands of their own. */
export const plain = (text) => text.replace(/: `peakmem list.*$/, "").replace(/--([a-z-]+)/g, (_, flag) => label(flag.replaceAll("-", "_")));

/** The line of a mistake as text. */
export const words = (mistake) => (mistake.parts ?? [mistake.error]).map((part) => (part.field ? label(part.field) : part)).join("");

/** The same with ways to the controls that it names. */
export function linked(mistake, places) {
  return (mistake.parts ?? [mistake.error]).map((part) => {
    const control = part.field && places[part.field]?.controls[0];
    return !part.field ? part : !control ? label(part.field) : h("a", { href: `#${control.id}`, "data-control": part.field }, label(part.field));
  });
}

/** "1 sequence", "2 sequences", and a rank of 0 is none. */
export function amount(row, value) {
  if (!Number.isFinite(Number(value))) return String(value);
  if (row.name === "lora_rank") return Number(value) ? `rank ${count(value)}` : "off";
  const unit = Number(value) === 1 ? row.unit.replace(/(?<=ch|sh|x|s)es$|s$/, "") : row.unit;
  return `${count(value)} ${unit}`.trim();
}
