/** Where answers come from: made beforehand, a server, or peakmem itself running in a worker. Never a formula here. */
const mode = document.documentElement.dataset.mode ?? "baked"; // served | baked | live
const known = new Map();
/** The first answers whatever comes; the second, as soon as it is there, what takes many estimates: no slider waits for those. */
const engines = [];
const MANY = ["fit", "levers", "room", "beside", "refused", "diagnose"];
let turn = 0;

/** Text of a request with its keys in order: the same question has one name. */
export function key(value) {
  if (Array.isArray(value)) return `[${value.map(key).join(",")}]`;
  if (value && typeof value === "object") {
    return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${key(value[name])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** Once Python runs in the page; at once where it is not to run here. */
let running = null;
export const started = () => (mode === "live" && !live() ? (running ??= new Promise((resolve) => { for (const name of ["engine", "engine-failed"]) addEventListener(name, resolve); })) : Promise.resolve());

export const live = () => mode === "served" || Boolean(engines[0]?.ready);
/** Whether one question holds up the next. */
export const slow = () => mode === "live";

/** Answers that lie in the page. Those of the first state at once, the others unpacked when they are needed. */
export function unpack() {
  const text = document.getElementById("baked")?.textContent ?? "{}";
  for (const [name, answer] of Object.entries(JSON.parse(text))) known.set(name, answer);
}

let more = null;
async function rest() {
  if (mode === "served") return;
  more ??= (async () => {
    try {
      const packed = document.getElementById("packed")?.textContent;
      const bytes = packed ? Uint8Array.from(atob(packed), (c) => c.charCodeAt(0)) : await (await fetch("answers.gz")).arrayBuffer();
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      for (const [name, answer] of Object.entries(await new Response(stream).json())) known.set(name, answer);
    } catch (error) {
      console.info("no further answers:", error);
    }
  })();
  await more;
}

/** Whether the answer is at hand. */
export const has = (request) => known.has(key(request));

const newest = new Map();

/**
 * The answer to a request; null where nobody here can give it, undefined where a newer question of the same channel
 * has come in between.
 */
export async function ask(request, channel = "") {
  const name = key(request);
  const mine = Symbol(name);
  if (channel) newest.set(channel, mine);
  if (known.has(name)) return known.get(name);
  if (!live()) {
    await rest();
    return known.get(name) ?? null;
  }
  const answer = JSON.parse(mode === "served" ? await posted(name) : await worked(name, request.timeline || MANY.includes(request.ask)));
  if (channel && newest.get(channel) !== mine) return undefined;
  remember(name, answer);
  return answer;
}

const MOST = 200;
function remember(name, answer) {
  if (known.size > MOST && mode === "served") known.delete(known.keys().next().value);
  known.set(name, answer);
}

const LONGEST = 2 ** 20; // characters that the engine reads
async function posted(text) {
  if (text.length > LONGEST) return JSON.stringify({ error: `it is longer than ${LONGEST.toLocaleString("en-US")} characters` });
  try {
    const answer = await fetch("ask", { method: "POST", body: text, headers: { "content-type": "application/json" } });
    const body = await answer.text();
    return body.startsWith("{") ? body : JSON.stringify({ error: `the server said ${answer.status}` });
  } catch {
    return JSON.stringify({ error: "the server does not answer; is peakmem serve still running?" });
  }
}

const worked = (text, many) => new Promise((resolve) => send(engines.filter((one) => one.ready).at(many ? -1 : 0), text, resolve));
function send(engine, text, resolve) {
  engine.waiting.set(++turn, { text, resolve });
  engine.worker.postMessage({ id: turn, text });
}

/** Start peakmem's own Python in a worker; the page is complete before. */
export function boot() {
  if (mode !== "live") return;
  engine(() => {
    document.documentElement.dataset.engine = "live";
    dispatchEvent(new Event("engine"));
    if ((navigator.deviceMemory ?? 8) >= 4) setTimeout(second, 1000); // it holds another 150 MiB
  }, (detail) => dispatchEvent(new CustomEvent("engine-failed", { detail })));
}

/** Without it the first does its work, too. */
function second() {
  const made = engine(() => { document.documentElement.dataset.engine = "two"; }, () => {
    engines.splice(engines.indexOf(made), 1);
    for (const { text, resolve } of made.waiting.values()) send(engines[0], text, resolve);
  });
}

function engine(ready, failed) {
  const worker = new Worker(window.peakmemWorker ?? "worker.js", { type: "module" });
  const made = { worker, ready: false, waiting: new Map() };
  engines.push(made);
  worker.onmessage = ({ data }) => {
    if (data.ready) {
      made.ready = true;
      ready();
    } else if (data.failed) failed(data.failed);
    else {
      made.waiting.get(data.id)?.resolve(data.text);
      made.waiting.delete(data.id);
    }
  };
  worker.onerror = (event) => failed(event.message);
  if (window.peakmemPayload) worker.postMessage(window.peakmemPayload());
  return made;
}

export { mode };
