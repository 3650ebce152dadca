// The run in four numbers, and what the tints and ticks of its chart mean.

import { h } from "./dom.js";
import { isMarked } from "./findings.js";
import { formatBytes, formatCount, formatShare } from "./format.js";
import { color } from "./theme.js";

export function tiles(details, capacity) {
  const { session, peak } = details;
  const bytes = peak?.allocated_peak_bytes ?? null;
  const room = details.headroom_bytes ?? null;
  const unallocated = capacity !== null && bytes !== null ? `, ${formatBytes(Math.max(0, capacity - bytes))} unallocated at the peak` : "";
  const tile = (name, value, note, id, meter) => h("div", { className: "tile" }, h("div", { className: "muted" }, name), h("div", { className: "value", id }, value), meter, h("div", { className: "muted small" }, note ?? ""));
  const meter = capacity && bytes !== null ? h("div", { className: "meter", title: "peak of capacity" }, h("div", { style: { width: `${Math.min(100, (100 * bytes) / capacity)}%` } })) : null;
  const stages = Object.entries(details.stage_batches).sort((a, b) => b[1] - a[1]).map(([stage, count]) => `${formatCount(count)} ${stage}`);
  return [
    tile("Peak allocated", formatBytes(bytes), bytes !== null ? `in batch ${formatCount(peak.batch)}, ${peak.stage}` : "", "tile-peak", meter),
    tile("Capacity", formatBytes(capacity), [session.device_name, session.device].filter(Boolean).join(" \u00b7 "), "tile-capacity"),
    tile("Headroom", formatBytes(room), room === null ? "" : `capacity less reserved, ${formatShare(room, capacity)}${unallocated}`, "tile-headroom"),
    tile("Batches", formatCount(details.count), stages.join(" \u00b7 "), "tile-batches"),
    details.notes.length ? h("p", { className: "notes" }, details.notes.join(" \u00b7 ")) : null,
  ];
}

// As far as this run has them.
export function signs(details, marks) {
  const sign = (hue, text) => h("span", { className: "key" }, h("span", { className: "swatch sign", style: { background: color(hue) } }), text);
  const line = (text, style) => h("span", { className: "key", data: { mark: text } }, h("span", { className: "upright", style: { borderLeftStyle: style } }), text);
  const marked = details.findings.filter(isMarked);
  const tinted = Object.keys(details.stage_batches).filter((stage) => stage !== "train");
  const levels = ["critical", "warning", "info"].filter((level) => details.findings.some((each) => each.severity === level));
  return [
    levels.map((level) => sign(level, `${level} finding`)),
    marked.length ? line("detected", "solid") : null,
    marked.some((each) => each.since !== null && each.since < each.first_batch) ? line("began", "dashed") : null,
    tinted.map((stage) => sign(`stage-${stage}`, stage)),
    marks.num_alloc_retries.length ? sign("warning", "allocation retry") : null,
    marks.num_device_free.length ? sign("empty-cache", "cache given back to the device") : null,
    marks.num_ooms.length ? sign("critical", "out of memory") : null,
  ].flat();
}
