/** A config.json from the reader's disk, as text: the engine reads it, so that no number in it is rounded on the way. */

const MOST_BYTES = 1e6;
const MARKS = [[[0xef, 0xbb, 0xbf], "utf-8"], [[0xff, 0xfe], "utf-16le"], [[0xfe, 0xff], "utf-16be"]];

/** A name as it may stand in a line. */
export const nameOf = (file) => file.name.replace(/\p{C}/gu, "").slice(0, 60) || "config.json";

/** Its text, without what stands between words. Errors: Error, one line. */
export async function read(file) {
  if (file.size > MOST_BYTES) throw new Error("it is larger than 1 MB");
  const text = decoded(new Uint8Array(await file.arrayBuffer())).replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
  if (!text) throw new Error("it is empty");
  if (!sound(text)) throw new Error("it is not JSON");
  return text;
}

/** Whether a text is JSON as Python reads it, with NaN and Infinity. */
export function sound(text) {
  try {
    JSON.parse(text.replace(/NaN|Infinity/g, "0"));
    return true;
  } catch {
    return false;
  }
}

function decoded(bytes) {
  const [, encoding] = MARKS.find(([mark]) => mark.every((byte, i) => bytes[i] === byte)) ?? [null, "utf-8"];
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not text in UTF-8");
  }
}
