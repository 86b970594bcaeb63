/** A config.json from the reader's disk: whatever comes, it is looked at before any work is done with it. */
import { parse } from "./ask.js";

const MOST_BYTES = 1e6;
const MOST_NESTED = 31; // with the question around it as deep as the engine reads
const MARKS = [[[0xef, 0xbb, 0xbf], "utf-8"], [[0xff, 0xfe], "utf-16le"], [[0xfe, 0xff], "utf-16be"]];

/** A name as it may stand in a line. */
export const nameOf = (file) => file.name.replace(/\p{C}/gu, "").slice(0, 60) || "config.json";

/** The fields of a model. Errors: Error, one line. */
export async function read(file) {
  if (file.size > MOST_BYTES) throw new Error("it is larger than 1 MB");
  const text = decoded(new Uint8Array(await file.arrayBuffer()));
  if (!text.trim()) throw new Error("it is empty");
  if (depth(text) > MOST_NESTED) throw new Error(`it is nested more than ${MOST_NESTED} deep`);
  let found;
  try {
    found = parse(text);
  } catch {
    throw new Error("it is not JSON");
  }
  if (!found || typeof found !== "object" || Array.isArray(found)) throw new Error("it holds no fields of a model");
  return found;
}

function decoded(bytes) {
  const [, encoding] = MARKS.find(([mark]) => mark.every((byte, i) => bytes[i] === byte)) ?? [null, "utf-8"];
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not text in UTF-8");
  }
}

/** How deep brackets are nested, outside of strings. */
function depth(text) {
  let now = 0, most = 0;
  for (const [bracket] of text.matchAll(/"(?:[^"\\]|\\.)*(?:"|$)|[[\]{}]/gs)) {
    if (bracket === "[" || bracket === "{") most = Math.max(most, ++now);
    else if (bracket === "]" || bracket === "}") now--;
  }
  return most;
}
