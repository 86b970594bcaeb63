/** Take it along: command line, Python, link, picture, table. */
import { h, announce } from "./format.js";
import { address, state } from "./store.js";

const quoted = (text) => (/^[\w.,+:/=*-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);
const flag = (name) => `--${name.replaceAll("_", "-")}`;

export function command() {
  const given = { ...state.sizes, ...state.settings };
  const parts = Object.entries(given).map(([name, value]) => `${flag(name)} ${quoted(value === true ? "yes" : value === false ? "no" : String(value))}`);
  return ["peakmem estimate", state.config ? "config.json" : quoted(state.model), ...parts].join(" ");
}

export function python() {
  const written = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : /^-?\d+(\.\d+)?$/.test(String(value)) ? String(value) : JSON.stringify(String(value)));
  const list = (given) => Object.entries(given).map(([name, value]) => `, ${name}=${written(value)}`).join("");
  const model = state.config ? '"config.json"' : JSON.stringify(state.model);
  if (!Object.keys(state.sizes).length && (state.config || state.model !== "custom")) return `import peakmem\n\nledger = peakmem.estimate(${model}${list(state.settings)})\nprint(ledger)`;
  const base = state.config ? "Model.read(\"config.json\")" : state.model === "custom" ? "custom()" : `find_model(${model})`;
  return `import peakmem\nfrom peakmem.tables.models import custom, find_model\nfrom peakmem.tables.resize import resize\n\nmodel = resize(${base.replace("Model", "peakmem.Model")}${list(state.sizes)})\nledger = peakmem.estimate(model${list(state.settings)})\nprint(ledger)`;
}

export function csv() {
  const rows = state.answer.ledger.chart;
  const names = Object.keys(rows[0].peak_by_kind);
  const lines = [["moment", "highest_bytes", "end_bytes", ...names], ...rows.map((row) => [row.moment, row.peak, row.end, ...names.map((name) => row.peak_by_kind[name])])];
  return lines.map((line) => line.join(",")).join("\n") + "\n";
}

/** The picture by itself: with its computed colours, a ground of its own and the size it is shown in. */
export function standalone(markup) {
  const host = h("div", { class: "picture", style: "position:absolute;left:-9999px" });
  host.innerHTML = markup;
  document.body.append(host);
  const svg = host.firstElementChild;
  for (const part of svg.querySelectorAll("rect, line, text, path")) {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "font-size", "font-weight", "font-family", "opacity"]) part.setAttribute(name, style.getPropertyValue(name));
    part.removeAttribute("class");
  }
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width, height, fill: getComputedStyle(document.documentElement).backgroundColor })) ground.setAttribute(name, value);
  svg.prepend(ground);
  const text = new XMLSerializer().serializeToString(svg);
  host.remove();
  return { text, width: Number(width), height: Number(height) };
}

async function png(markup) {
  const { text, width, height } = standalone(markup);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = h("canvas", { width: width * 2, height: height * 2 });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  context.drawImage(image, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function save(content, type, name) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  announce(`${name} saved`);
}

/** Copy; where the browser refuses, the text is shown to be copied by hand. */
async function copy(text, what, shown) {
  shown.hidden = false;
  shown.textContent = text;
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} copied`);
  } catch {
    announce(`${what}: copy it from below the buttons`);
    getSelection()?.selectAllChildren(shown);
  }
}

export function tools(svg) {
  const shown = h("pre", { class: "copied", hidden: true, tabindex: 0 });
  const button = (text, what) => h("button", { type: "button", onclick: what }, text);
  return [
    h("span", { class: "quiet" }, "Copy"), button("command line", () => copy(command(), "Command line", shown)), button("Python", () => copy(python(), "Python", shown)), button("link", () => copy(address(), "Link", shown)),
    h("span", { class: "quiet" }, "Save"), button("PNG", async () => save(await png(svg()), "image/png", "peakmem.png")), button("SVG", () => save(standalone(svg()).text, "image/svg+xml", "peakmem.svg")), button("CSV", () => save(csv(), "text/csv", "peakmem.csv")),
    shown,
  ];
}
