// The timeline's chart: memory over batches with the capacity line, stage bands, marks of findings, retries and OOM.

import uPlot from "./vendor/uPlot.esm.min.js";
import { axisUnit, formatBytes, formatCount } from "./format.js";
import { color } from "./theme.js";

const GAP = 3;
const NEAR = 1.25; // a notch of the wheel
const FEW = 60; // rows that are drawn with a dot each: a line needs two
export const LEFT = 76; // room for the labels of the y axis
export const RIGHT = 10;

// Options: width, height, series [{label, key, color, width, dash, fill, show}], bands, capacity, state() -> {bands, stages,
// marks, findings, pinned}, onZoom(x0, x1), onPick(batch), onCursor(position or null), sync.
export function memoryChart(container, options, columns) {
  const axis = { stroke: color("muted"), grid: { stroke: color("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  let pressed = null;
  const chart = new uPlot({
    width: options.width,
    height: options.height,
    padding: [8, RIGHT, 0, 0],
    legend: { show: false },
    cursor: {
      drag: { x: true, y: false, setScale: false, dist: GAP },
      points: { size: 7, width: 1.5, fill: color("panel") },
      sync: options.sync ? { key: options.sync, setSeries: false } : undefined,
      focus: { prox: -1 },
      bind: { dblclick: () => () => options.onReset?.() },
    },
    select: { show: true },
    scales: { x: { time: false, range: (_, low, high) => (high > low ? [low, high] : [low - 0.5, high + 0.5]) }, y: { range: (_, low, high) => heights(options.capacity, low, high, options.floor) } },
    axes: [
      { ...axis, grid: { show: false }, size: 30, values: (_, splits) => splits.map((split) => (Number.isInteger(split) ? options.along?.(split) ?? formatCount(split) : "")) },
      { ...axis, size: LEFT, splits: (u, _, low, high) => niceSplits(low, high, u.bbox.height / devicePixelRatio), values: (_, splits) => axisTexts(splits) },
    ],
    series: [{ label: "batch" }, ...options.series.map((each) => ({
      label: each.label, stroke: each.color, width: each.width ?? 1.5, dash: each.dash, fill: each.fill, show: each.show !== false, spanGaps: true, paths: each.measured ? () => null : each.steps ? uPlot.paths.stepped({ align: 1 }) : undefined, points: { show: (u) => each.measured || u.data[0].length <= FEW, size: each.measured ? 3 : 4, width: 0, fill: each.color },
    }))],
    bands: options.bands ?? [],
    hooks: {
      drawClear: [(u) => drawBands(u, options)],
      draw: [(u) => drawMarks(u, options), () => options.onDrawn?.()],
      setCursor: [(u) => options.onCursor?.(u.cursor.idx ?? null, u.cursor.left >= 0)],
      setSelect: [(u) => {
        if (u.select.width > GAP) options.onZoom?.(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }],
    },
  }, columns, container);
  chart.over.addEventListener("mousedown", (event) => {
    pressed = event.clientX;
  });
  chart.over.addEventListener("click", (event) => {
    if (pressed !== null && Math.abs(event.clientX - pressed) <= GAP && options.onPick) {
      const left = event.clientX - chart.over.getBoundingClientRect().left;
      const reach = Math.abs(chart.posToVal(left + 3, "x") - chart.posToVal(left, "x"));
      options.onPick(chart.posToVal(left, "x"), reach);
    }
  });
  if (options.onZoom) followFingers(chart, options.onZoom);
  return chart;
}

// Ctrl and the wheel, which a pinch on a touchpad is too, and two fingers on a screen zoom about where they are.
function followFingers(chart, zoom) {
  const about = (clientX, factor) => {
    const { left, width } = chart.over.getBoundingClientRect();
    const share = (clientX - left) / width;
    const { min, max } = chart.scales.x;
    const at = min + share * (max - min);
    zoom(at - (at - min) * factor, at + (max - at) * factor);
  };
  chart.over.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    about(event.clientX, event.deltaY > 0 ? NEAR : 1 / NEAR);
  }, { passive: false });
  const distance = ([one, other]) => Math.abs(one.clientX - other.clientX) || 1;
  let before = null;
  chart.over.addEventListener("touchmove", (event) => {
    if (event.touches.length !== 2) return;
    event.preventDefault();
    const now = distance(event.touches);
    if (before !== null && Math.abs(now / before - 1) > 0.05) {
      about((event.touches[0].clientX + event.touches[1].clientX) / 2, before / now);
      before = now;
    }
    before ??= now;
  }, { passive: false });
  chart.over.addEventListener("touchend", () => (before = null));
}

// From zero to the capacity where the run comes near it; else to a little above what is drawn.
function heights(capacity, low, high, floor) {
  if (!Number.isFinite(high)) return [0, 1];
  if (floor === "fit") return [low - 0.08 * (high - low || 1), high + 0.12 * (high - low || 1)];
  if (capacity && high > 0.3 * capacity) return [0, Math.max(capacity, high) * 1.09];
  return [0, high * 1.15 || 1];
}

// Round numbers in the unit shown, never in powers of ten of bytes.
function niceSplits(low, high, height) {
  const { divisor } = axisUnit(Math.max(Math.abs(low), Math.abs(high)));
  const span = (high - low) / divisor;
  const rough = span / Math.max(2, height / 46);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? power * 10;
  const splits = [];
  for (let at = Math.ceil(low / divisor / step) * step; at <= high / divisor + 1e-9; at += step) splits.push(at * divisor);
  return splits;
}

function axisTexts(splits) {
  if (Math.max(...splits) <= 1) return splits.map(() => ""); // nothing is drawn
  const { divisor, unit } = axisUnit(Math.max(...splits.map(Math.abs), 1));
  return splits.map((split) => (split === 0 ? "0" : `${Number((split / divisor).toFixed(3))} ${unit}`));
}

function drawBands(u, options) {
  const { bands = [], stages = [] } = options.state();
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const [first, last, code] of bands) {
    const from = u.valToPos(first - 0.5, "x", true);
    const to = Math.max(u.valToPos(last + 0.5, "x", true), from + devicePixelRatio);
    if (to < left || from > left + width) continue;
    const stage = stages[code] ?? "other";
    ctx.fillStyle = color(`stage-${stage}`) || color("stage-other");
    ctx.fillRect(from, top, to - from, height);
  }
  ctx.restore();
}

function drawMarks(u, options) {
  const { marks = {}, findings = [], pinned } = options.state();
  const { ctx } = u;
  const { left, top, width, height } = u.bbox;
  const ratio = devicePixelRatio;
  const place = (batch) => u.valToPos(batch, "x", true);
  const inside = (at) => at >= left - 1 && at <= left + width + 1;
  const vertical = (batch, style, dash, thickness = 1) => {
    const at = place(batch);
    if (!inside(at)) return;
    ctx.strokeStyle = style;
    ctx.lineWidth = thickness * ratio;
    ctx.setLineDash(dash.map((each) => each * ratio));
    ctx.beginPath();
    ctx.moveTo(at, top);
    ctx.lineTo(at, top + height);
    ctx.stroke();
    ctx.setLineDash([]);
  };
  const tick = (batch, style, up) => {
    const at = place(batch);
    if (!inside(at)) return;
    ctx.fillStyle = style;
    ctx.fillRect(at - ratio, top + height - up * ratio, 2 * ratio, up * ratio);
  };
  ctx.save();
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  if (options.capacity) {
    const at = u.valToPos(options.capacity, "y", true);
    if (at >= top) {
      ctx.strokeStyle = color("capacity");
      ctx.lineWidth = 1.25 * ratio;
      ctx.setLineDash([6 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, at);
      ctx.lineTo(left + width, at);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = color("capacity");
      ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
      ctx.fillText(`capacity ${formatBytes(options.capacity)}`, left + 6 * ratio, at - 6 * ratio);
    } else if (options.labels) {
      ctx.fillStyle = color("muted");
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.fillText(`capacity ${formatBytes(options.capacity)} \u2191`, left + 6 * ratio, top + 14 * ratio);
    }
  }
  for (const finding of findings) { // where it began, if that is known and drawn apart, and where it was detected
    if (finding.since !== null && place(finding.first_batch) - place(finding.since) > GAP * ratio) vertical(finding.since, color(finding.severity), [4, 3], 1.25);
    vertical(finding.first_batch, color(finding.severity), [], 1.25);
  }
  for (const batch of marks.num_device_free ?? []) tick(batch, color("empty-cache"), 6);
  for (const batch of marks.num_alloc_retries ?? []) tick(batch, color("warning"), 10);
  for (const batch of marks.num_ooms ?? []) vertical(batch, color("critical"), [2, 2], 2);
  if (pinned !== null && pinned !== undefined) vertical(pinned, color("text"), [3, 3]);
  ctx.restore();
}
