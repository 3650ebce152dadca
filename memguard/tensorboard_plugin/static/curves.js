// The curves of the timeline: what they are called and mean, and their values at one batch.

import { h } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";
import { color } from "./theme.js";

// Column, name, colour, what it means, style of the line.
export const CURVES = [
  ["reserved_peak_bytes", "Reserved", "reserved", "Held by PyTorch's allocator, its cache included", { width: 1.25, steps: true }],
  ["device_used_bytes", "Device used", "device", "In use on the device by all processes, where it was measured", { measured: true }],
  ["allocated_peak_bytes", "Peak", "peak", "Highest allocated memory during the batch", { width: 1.5 }],
  ["allocated_end_bytes", "End", "end", "Allocated when the batch ended", { width: 1, show: false }],
  ["allocated_start_bytes", "Start", "start", "Allocated when the batch began: what stays between batches", { width: 1.75 }],
];
// The batch in words: stage, epoch, index, input shapes.
export function readout(row, shapes) {
  const parts = [row.stage, row.epoch === null ? null : `epoch ${row.epoch}`, row.index === null ? null : `index ${row.index}`, shapes[row.shapes], row.num_alloc_retries ? `allocation retries: ${row.num_alloc_retries}` : null];
  return [h("strong", null, `Batch ${formatCount(row.batch)}`), h("span", { className: "muted" }, parts.filter(Boolean).join(" \u00b7 "))];
}

// A switch for each curve that the recording has, with its value at the row.
export function keys(series, row, shown, toggle) {
  const recorded = ([name]) => series.columns[name].some((value) => !Number.isNaN(value));
  return [...CURVES].reverse().filter(recorded).map(([name, label, hue, meaning]) => h("button", { className: "key", title: meaning, data: { column: name }, "aria-pressed": String(shown.has(name)), onclick: () => toggle(name) },
    h("span", { className: "swatch", style: { background: color(hue) } }), label, h("span", { className: "number" }, row ? formatBytes(row[name]) : "")));
}
