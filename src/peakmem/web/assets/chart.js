/** The moments as stacked bars: SVG text from a ledger. The same text is drawn, exported as SVG and painted as PNG. */
import { bare, fixed, gib, kinds, letter, momentTitle, safe, title } from "./format.js";

const LEFT = 44, TOP = 30, BOTTOM = 26;

/** Round steps of an axis in GiB: 1, 2, 5 times a power of ten, at most six of them. */
export function steps(most) {
  const rough = Math.max(most, 1) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= rough) ?? rough;
  const made = [];
  for (let at = 0; at <= most * 1.0001; at += step) made.push(at);
  return made;
}

/** Labels of an axis: in GiB, or in MiB where all is small. */
export function axis(most) {
  const unit = most >= 2 ** 30 ? 2 ** 30 : 2 ** 20;
  const at = steps(most / unit);
  const digits = at.length > 1 && at[1] < 1 ? (at[1] < 0.1 ? 2 : 1) : 0;
  return { unit: unit === 2 ** 30 ? "GiB" : "MiB", ticks: at.map((x) => [x * unit, fixed(x, digits)]) };
}

/**
 * The whole picture. room: of the GPU, or null; behind: a pinned ledger, drawn as an outline; chosen: index of the
 * moment that is looked at.
 */
export function draw({ ledger, room, behind, chosen, width, height, frame = 0 }) {
  const rows = ledger.chart;
  const right = 12;
  const top = Math.max(1, frame, room?.reserved ? room.used : 0, ...rows.map((row) => row.peak), ...(behind?.chart ?? []).filter((row) => rows.some((other) => other.moment === row.moment)).map((row) => row.peak));
  const limit = room ? room.capacity - room.context[1] : 0;
  const shown = limit > 0 && limit <= 2 * top;
  const most = shown ? Math.max(top, limit) : top;
  const area = height - TOP - BOTTOM;
  const y = (bytes) => TOP + area * (1 - bytes / (most * 1.04));
  const slot = (width - LEFT - right) / rows.length;
  const bar = Math.max(8, Math.min(64, slot * 0.74, slot - 9)); // beside it there is room for a letter
  const scale = axis(most);
  const parts = scale.ticks.map(([bytes, text]) =>
    `<line class="tick" x1="${LEFT}" x2="${width - right}" y1="${y(bytes).toFixed(1)}" y2="${y(bytes).toFixed(1)}"/>` +
    `<text class="axis" x="${LEFT - 6}" y="${(y(bytes) + 4).toFixed(1)}" text-anchor="end">${text}</text>`);
  parts.push(`<text class="axis" x="2" y="14">${scale.unit}</text>`);
  const amounts = []; // over the line of the GPU
  rows.forEach((row, i) => {
    const x = LEFT + slot * i + (slot - bar) / 2;
    if (i === chosen) parts.push(`<rect class="chosen" x="${(LEFT + slot * i).toFixed(1)}" y="${TOP - 16}" width="${slot.toFixed(1)}" height="${area + 16 + BOTTOM - 2}"/>`);
    const old = behind?.chart.find((other) => other.moment === row.moment);
    if (old) parts.push(`<rect class="behind" x="${(x - 3).toFixed(1)}" y="${y(old.peak).toFixed(1)}" width="${(bar + 6).toFixed(1)}" height="${(y(0) - y(old.peak)).toFixed(1)}"/>`);
    let below = 0, aside = height;
    for (const kind of kinds()) {
      const amount = row.peak_by_kind[kind] ?? 0;
      if (amount <= 0) continue;
      const low = y(below), high = y(below + amount);
      below += amount;
      const tall = Math.max(low - high - 1.2, 0.3);
      parts.push(`<rect class="seg ${kind}" data-moment="${safe(row.moment)}" data-kind="${kind}" data-bytes="${amount}" x="${x.toFixed(1)}" y="${high.toFixed(2)}" width="${bar.toFixed(1)}" height="${tall.toFixed(2)}"><title>${safe(`${momentTitle(row.moment)}: ${title(kind)} ${gib(amount)}`)}</title></rect>`);
      if (tall >= 15 && bar >= 10) parts.push(`<text class="on ${kind}" x="${(x + bar / 2).toFixed(1)}" y="${((low + high) / 2 + 4).toFixed(1)}" text-anchor="middle">${letter(kind)}</text>`);
      else if (tall >= 1 && slot - bar >= 8) {
        aside = Math.min((low + high) / 2 + 3.5, aside - 9); // beside it where it is too thin to hold it
        parts.push(`<text class="aside" x="${(x + bar + Math.min(5, (slot - bar) / 2 - 3)).toFixed(1)}" y="${aside.toFixed(1)}">${letter(kind)}</text>`);
      }
    }
    const beyond = row.peak === ledger.peak.bytes && room?.reserved ? room.used - row.peak : 0;
    if (beyond > 0) parts.push(`<rect class="beyond" x="${x.toFixed(1)}" y="${y(row.peak + beyond).toFixed(1)}" width="${bar.toFixed(1)}" height="${Math.max(0, y(row.peak) - y(row.peak + beyond) - 1).toFixed(1)}"><title>${safe(`reserved by PyTorch beyond the tensors: ${gib(beyond)}`)}</title></rect>`);
    parts.push(`<line class="end" x1="${(x - 4).toFixed(1)}" x2="${(x + bar + 4).toFixed(1)}" y1="${y(row.end).toFixed(1)}" y2="${y(row.end).toFixed(1)}"/>`);
    const best = row.peak === ledger.peak.bytes;
    const inUnit = scale.unit === "GiB" ? bare(row.peak, row.peak >= 100 * 2 ** 30 || (slot < 30 && !best && row.peak >= 10 * 2 ** 30) ? 0 : 1) : gib(row.peak, 0).replace(/ .*/, "");
    amounts.push(`<text class="amount${best ? " best" : ""}${slot < 34 ? " narrow" : ""}" x="${(x + bar / 2).toFixed(1)}" y="${(y(row.peak + Math.max(0, beyond)) - 5).toFixed(1)}" text-anchor="middle">${inUnit}</text>`);
    parts.push(`<text class="axis${slot < 34 ? " tight" : ""}" x="${(x + bar / 2).toFixed(1)}" y="${height - 8}" text-anchor="middle">${safe(short(row.moment, slot))}</text>`);
  });
  if (shown) {
    const at = y(limit);
    parts.push(`<line class="limit" x1="${LEFT}" x2="${width - right}" y1="${at.toFixed(1)}" y2="${at.toFixed(1)}"/>`);
  }
  parts.push(...amounts);
  if (limit > 0) {
    const words = `${shown ? "– – " : ""}${room.gpu}${width < 400 ? "" : ", less its context"}: ${gib(limit, 1)}${shown ? "" : ", far above"}`;
    parts.push(`<text class="axis limit" x="${width - right}" y="12" text-anchor="end">${safe(words)}</text>`);
  }
  const label = `Peak ${gib(ledger.peak.bytes)}, ${momentTitle(rows.find((row) => row.peak === ledger.peak.bytes)?.moment ?? "")}. ` +
    rows.map((row) => `${momentTitle(row.moment)} ${gib(row.peak)}`).join("; ");
  return `<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${safe(label)}">${parts.join("")}</svg>`;
}

const short = (name, slot) => (name.includes("decode") && slot < 90 ? name.replace("first decode", "first").replace("last decode", "last") : name);
