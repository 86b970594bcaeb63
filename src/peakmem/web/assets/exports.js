/** Take it along: command line, Python, link, picture, table. */
import { gib, h, announce, kinds, letter, tell, title } from "./format.js";
import { address, current, missed, on, setting, state } from "./store.js";

const quoted = (text) => (/^[\w.,+:/=*-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);
const flag = (name) => `--${name.replaceAll("_", "-")}`;

/** A model and its settings as the command line takes them. A file is called as it was, where that is a file's name. */
function run({ model, config, sizes, settings }) {
  const parts = Object.entries({ ...sizes, ...settings }).map(([name, value]) => `${flag(name)} ${quoted(value === true ? "yes" : value === false ? "no" : String(value))}`);
  const file = /\.json$/.test(model) ? model.replace(/^-/, "./-") : "config.json";
  return [quoted(config ? file : model), ...parts].join(" ");
}

/** The command that shows what is looked at: over time, and beside what is pinned. */
export function command(view = "bars") {
  const shown = `peakmem estimate ${run(state)}${view === "time" ? " --timeline" : ""}`;
  return state.pinned ? `${shown}\npeakmem compare ${quoted(run(state.pinned.request))} ${quoted(run(state))}` : shown;
}

/** The model's name: a file's as it was. */
export const called = () => (state.config ? state.model : state.answer?.ledger.run.model.name ?? state.model);

/** What the answer is an answer to: the settings that everybody asks for, and all that were changed. */
export function stated() {
  const names = new Set(["run", "batch", "sequence", "precision", "optimizer", ...Object.keys(state.settings)]);
  const given = [...Object.entries(state.sizes), ...[...names].filter((name) => !state.answer.idle?.[name]).map((name) => [name, setting(name)])];
  return given.map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ");
}

export function python(view = "bars") {
  const print = view === "time" ? "print(ledger)\nfor moment, by_kind in ledger.timeline:\n    print(moment, sum(by_kind.values()), by_kind)" : "print(ledger)";
  const written = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : /^-?\d+(\.\d+)?$/.test(String(value)) ? String(value) : JSON.stringify(String(value)));
  const list = (given) => Object.entries(given).map(([name, value]) => `, ${name}=${written(value)}`).join("");
  const model = state.config ? '"config.json"' : JSON.stringify(state.model);
  if (!Object.keys(state.sizes).length && (state.config || state.model !== "custom")) return `import peakmem\n\nledger = peakmem.estimate(${model}${list(state.settings)})\n${print}`;
  const base = state.config ? "Model.read(\"config.json\")" : state.model === "custom" ? "custom()" : `find_model(${model})`;
  return `import peakmem\nfrom peakmem.tables.models import custom, find_model\nfrom peakmem.tables.resize import resize\n\nmodel = resize(${base.replace("Model", "peakmem.Model")}${list(state.sizes)})\nledger = peakmem.estimate(model${list(state.settings)})\n${print}`;
}

/** The moments as a table. */
function moments() {
  const rows = state.answer.ledger.chart;
  const names = Object.keys(rows[0].peak_by_kind);
  const lines = [["moment", "highest_bytes", "end_bytes", ...names], ...rows.map((row) => [row.moment, row.peak, row.end, ...names.map((name) => row.peak_by_kind[name])])];
  return lines;
}

const HEAD = 50, LINE = 15, FOOT = 22;

/** Words in lines of so many letters. */
function lines(text, most) {
  const made = [""];
  for (const word of text.split(" ")) {
    if (made.at(-1) && made.at(-1).length + word.length >= most) made.push(word);
    else made.push(`${made.pop()} ${word}`.trim());
  }
  return made;
}

/** What a picture needs where no page is around it: model, settings and total above, the kinds below. */
function framed(svg) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const add = (tag, given, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
    made.textContent = text;
    svg.append(made);
  };
  const { ledger } = state.answer;
  const small = lines(`Settings: ${stated()}`, width / 6.2);
  const top = -(HEAD + LINE * small.length);
  add("text", { class: "best", x: 8, y: top + 22 }, `${called()}: ${gib(ledger.peak.bytes)} at the peak`);
  small.forEach((text, i) => add("text", { class: "axis", x: 8, y: top + 42 + LINE * i }, text));
  let x = 8, y = height + 12;
  for (const kind of kinds().filter((one) => ledger.chart.some((row) => row.peak_by_kind[one]))) {
    const wide = 34 + 7 * title(kind).length;
    if (x > 8 && x + wide > width) [x, y] = [8, y + FOOT];
    add("rect", { class: `seg ${kind}`, x, y: y - 11, width: 15, height: 15 });
    add("text", { class: `on ${kind}`, x: x + 7.5, y: y + 1, "text-anchor": "middle" }, letter(kind));
    add("text", { class: "key", x: x + 20, y: y + 1 }, title(kind));
    x += wide;
  }
  const tall = y + FOOT - 8 - top;
  svg.setAttribute("viewBox", `0 ${top} ${width} ${tall}`);
  svg.setAttribute("height", tall);
}

/** The picture by itself: with its computed colours, a ground of its own and the size it is shown in. */
export function standalone(markup) {
  const host = h("div", { class: "picture", style: "position:absolute;left:-9999px" });
  host.innerHTML = markup;
  document.body.append(host);
  const svg = host.firstElementChild;
  framed(svg);
  for (const part of svg.querySelectorAll("rect, line, text, path")) {
    const style = getComputedStyle(part);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "paint-order", "font-size", "font-weight", "font-family", "opacity"]) part.setAttribute(name, style.getPropertyValue(name));
    part.removeAttribute("class");
  }
  const [, top, width, height] = svg.getAttribute("viewBox").split(" ");
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ y: top, width, height, fill: getComputedStyle(document.documentElement).backgroundColor })) ground.setAttribute(name, value);
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

function copyLink(shown) {
  copy(address(), "Link", shown);
  if (missed()) tell("link", missed());
}

/** What takes numbers along waits for those of the settings that are shown. */
function whileCurrent(button) {
  for (const name of ["change", "answer", "error"]) on(name, () => { button.disabled = !current(); });
  return button;
}

/** shown: the picture that is looked at, its table where that is not the moments', and what its files are called. */
export function tools(what, view) {
  const shown = h("pre", { class: "copied", hidden: true, tabindex: 0 });
  for (const name of ["change", "view", "pin"]) on(name, () => { shown.hidden = true; }); // it would say what was
  const button = (text, act) => h("button", { type: "button", onclick: act }, text);
  const taking = (text, made, type) => whileCurrent(button(text, async () => {
    const { picture, table = moments(), name = "" } = await what();
    save(await made(picture, table), type, `peakmem${name}.${text.toLowerCase()}`);
  }));
  return [
    h("span", { class: "quiet" }, "Copy"), button("command line", () => copy(command(view()), "Command line", shown)), button("Python", () => copy(python(view()), "Python", shown)), button("link", () => copyLink(shown)),
    h("span", { class: "quiet" }, "Save"), taking("PNG", png, "image/png"), taking("SVG", (picture) => standalone(picture).text, "image/svg+xml"), taking("CSV", (_, table) => table.map((line) => `${line.join(",")}\n`).join(""), "text/csv"),
    shown,
  ];
}
