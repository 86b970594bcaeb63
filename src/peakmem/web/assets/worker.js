/**
 * peakmem's own Python in a worker. In a folder its files lie beside it; in a single file they come as a message, and
 * what Pyodide would fetch is taken from there.
 */
const start = (self.location.protocol === "data:" ? fromMessage() : fromFolder()).catch((error) => {
  postMessage({ failed: String(error.message ?? error) });
});

async function fromFolder() {
  const base = new URL("./", import.meta.url).href;
  const { loadPyodide } = await import(`${base}pyodide/pyodide.mjs`);
  const [python, zip] = await Promise.all([loadPyodide({ indexURL: `${base}pyodide/` }), fetch(`${base}peakmem.zip`).then((answer) => answer.arrayBuffer())]);
  serve(python, new Uint8Array(zip));
}

async function fromMessage() {
  const packed = await new Promise((resolve) => { onmessage = ({ data }) => resolve(data); });
  const files = Object.fromEntries(await Promise.all(Object.entries(packed).map(async ([name, text]) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return [name, new Uint8Array(await new Response(stream).arrayBuffer())];
  })));
  const module = (name) => import(URL.createObjectURL(new Blob([files[name]], { type: "text/javascript" })));
  const fetched = self.fetch;
  self.fetch = async (url, ...rest) => {
    const name = String(url?.url ?? url).split("/").pop() ?? "";
    if (!(name in files)) return fetched(url, ...rest);
    return new Response(files[name], { headers: { "content-type": name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream" } });
  };
  const [{ loadPyodide }, asm] = [await module("pyodide.mjs"), await module("pyodide.asm.mjs")];
  const python = await loadPyodide({ indexURL: "file:///pyodide/", createPyodideModule: asm.default, lockFileContents: new TextDecoder().decode(files["pyodide-lock.json"]) });
  serve(python, files["peakmem.zip"]);
}

function serve(python, zip) {
  python.FS.writeFile("/peakmem.zip", zip);
  python.runPython("import sys; sys.path.insert(0, '/peakmem.zip')\nfrom peakmem.web.answer import estimate_json");
  const answer = python.globals.get("estimate_json");
  answer('{"model":"gpt2"}'); // the first answer imports the engine
  onmessage = ({ data }) => postMessage({ id: data.id, text: answer(data.text) });
  postMessage({ ready: true });
}

export { start };
