// The ranks' peaks as a map, rank by time, grouped by a parallel axis; a click opens the rank.

import { h, replace, sharpCanvas } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";
import { color } from "./theme.js";

const LABELS = 96;
const LEAST = 160;
const MOST = 520;
const GAP = 3;

export async function heatMap(page, container, pick) {
  const data = await page.source.heat(page.state.run, page.state.start);
  if (!data || data.ranks.length < 2 || !data.batch.length) return replace(container);
  const cells = Uint8Array.from(atob(data.cells), (each) => each.charCodeAt(0));
  const axes = Object.keys(data.places);
  if (page.state.axis !== "" && !axes.includes(page.state.axis)) page.state.axis = axes[0] ?? "";
  const canvas = h("canvas", { id: "heat", tabIndex: 0, role: "img", "aria-label": "Peaks of all ranks over the run" });
  const readout = h("span", { id: "heat-readout", className: "muted" });
  const choice = h("select", { id: "axis", onchange: (event) => {
    page.state.axis = event.target.value;
    draw();
  } }, [...axes, ""].map((axis) => h("option", { value: axis, selected: axis === page.state.axis }, axis || "rank")));
  const scale = `${formatBytes(data.low)} to ${formatBytes(data.high)}`;
  replace(container, h("div", { className: "row" }, h("h2", null, "Peaks, rank by time"), h("label", null, h("span", { className: "muted" }, "Grouped by"), choice), h("span", { className: "muted" }, scale), h("span", { className: "grow" }), readout), canvas);
  let lines = [];
  let height = 0;

  function draw() {
    const places = data.places[page.state.axis];
    const order = data.ranks.map((_, row) => row).sort((a, b) => (places ? compare(places[a], places[b]) : 0) || a - b);
    const groups = places ? new Set(places).size : 1;
    height = Math.min(MOST, Math.max(LEAST, 6 * order.length + GAP * groups));
    const width = Math.max(LABELS + 100, container.clientWidth);
    const context = sharpCanvas(canvas, width, height);
    const each = (height - GAP * (groups - 1)) / order.length;
    const step = (width - LABELS) / data.batch.length;
    const shades = palette();
    lines = [];
    let top = 0;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "top";
    order.forEach((row, at) => {
      const begins = at === 0 || (places && places[row] !== places[order[at - 1]]);
      if (begins && at) top += GAP;
      if (begins && (places || at === 0)) {
        context.fillStyle = color("muted");
        context.fillText(places ? `${page.state.axis}=${places[row] ?? "?"}` : "rank 0 first", 0, Math.min(top, height - 12), LABELS - 6);
      }
      for (let column = 0; column < data.batch.length; column += 1) {
        const value = cells[row * data.batch.length + column];
        if (!value) continue;
        context.fillStyle = shades[value];
        context.fillRect(LABELS + column * step, top, step + 0.5, each + 0.25);
      }
      lines.push({ top, row });
      top += each;
    });
    canvas.dataset.axis = page.state.axis;
    canvas.dataset.rows = order.length;
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, ((event.clientY - box.top) / box.height) * height];
    const column = Math.floor(((x - LABELS) / (box.width - LABELS)) * data.batch.length);
    const line = lines.findLast((each) => each.top <= y);
    return line && column >= 0 && column < data.batch.length ? { row: line.row, column } : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    const found = at(event);
    if (!found) return replace(readout);
    const value = cells[found.row * data.batch.length + found.column];
    const bytes = data.low + ((value - 1) / 254) * (data.high - data.low);
    const place = axes.map((axis) => `${axis}=${data.places[axis][found.row]}`).join(", ");
    const ranks = data.together > 1 ? `ranks ${data.ranks[found.row]} and ${data.together - 1} more` : `rank ${data.ranks[found.row]}`;
    return replace(readout, `${ranks}${place ? ` (${place})` : ""}, batch ${formatCount(data.batch[found.column])}: ${value ? formatBytes(bytes) : "no record"}`);
  });
  canvas.addEventListener("click", (event) => {
    const found = at(event);
    if (found) pick(data.ranks[found.row], data.batch[found.column]);
  });
  draw();
  return container;
}

function compare(a, b) {
  if (a === b) return 0;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true });
}

// From the panel's colour to that of peaks, so that it reads in light and dark.
function palette() {
  const [from, to] = [parse(color("strip")), parse(color("peak"))];
  return Array.from({ length: 256 }, (_, value) => `rgb(${from.map((low, part) => Math.round(low + (to[part] - low) * (value / 255) ** 1.4)).join(",")})`);
}

function parse(text) {
  const digits = text.replace("#", "");
  return [0, 2, 4].map((at) => parseInt(digits.slice(at, at + 2), 16));
}
