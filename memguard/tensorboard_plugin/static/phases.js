// What the program names of its loop: a row for each phase, and a band for each below the chart.

import { h, replace, sharpCanvas, table } from "./dom.js";
import { LEFT, RIGHT } from "./chart.js";
import { formatBytes, formatCount } from "./format.js";
import { color } from "./theme.js";

const LANE = 12;
const MOST_LANES = 12;
const HUES = ["peak", "start", "host", "warning", "critical", "reserved"];

function hue(row) {
  return color(HUES[row % HUES.length]) || color("muted");
}

// The table; empty where the program names no phase.
export function phaseTable(container, details) {
  const rows = details.phases?.rows ?? [];
  if (!rows.length) return replace(container);
  const swatch = (row, at) => h("span", { className: "key" }, h("span", { className: "swatch sign", style: { background: hue(at) } }), row.name);
  const times = (row) => `${formatCount(row.times)}${row.failed ? `, ${formatCount(row.failed)} failed` : ""}`;
  return replace(container, h("section", { className: "panel", id: "phases", "aria-label": "Phases" }, h("h2", null, "Phases"), table(
    ["Phase", "Times", "ms each", "Peak allocated", "Peak reserved", "Allocated after"],
    rows.map((row, at) => [swatch(row, at), times(row), row.times ? ((1000 * row.seconds) / row.times).toFixed(1) : "-", formatBytes(row.allocated_peak_bytes), formatBytes(row.reserved_peak_bytes), formatBytes(row.floor_bytes)]),
    { numeric: [1, 2, 3, 4, 5] },
  )));
}

// One lane for each phase, over the batches in view.
export function phaseBands(container, details, [low, high], width) {
  const { rows = [], stretches = [] } = details.phases ?? {};
  const lanes = Math.min(rows.length, MOST_LANES);
  if (!lanes || !stretches.length || !width) return replace(container);
  const canvas = h("canvas", { role: "img", "aria-label": `Phases over batches: ${rows.slice(0, lanes).map((row) => row.name).join(", ")}` });
  replace(container, h("div", { className: "muted small caption" }, "Phases"), canvas);
  const context = sharpCanvas(canvas, width, lanes * LANE);
  const inner = width - LEFT - RIGHT;
  const place = (batch) => LEFT + (inner * (batch - low)) / (high - low || 1);
  for (const [first, last, row] of stretches) {
    if (row >= lanes || last + 0.5 < low || first - 0.5 > high) continue;
    const from = Math.max(place(first - 0.5), LEFT);
    const to = Math.min(Math.max(place(last + 0.5), from + 1), LEFT + inner);
    context.fillStyle = hue(row);
    context.fillRect(from, row * LANE + 2, to - from, LANE - 4);
  }
  context.fillStyle = color("muted");
  context.font = "10px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let row = 0; row < lanes; row += 1) context.fillText(rows[row].name.split(" > ").pop(), LEFT - 6, (row + 0.5) * LANE, LEFT - 8);
}
