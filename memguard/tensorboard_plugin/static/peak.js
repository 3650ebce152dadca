// Explain the peak: who owned the memory of one batch, and how it differed from the median batch of its stage.

import { contentsPart } from "./contents.js";
import { h, replace, table } from "./dom.js";
import { grownBytes } from "./findings.js";
import { formatBytes, formatCount, formatDifference, formatPlace, formatSeconds, formatShare } from "./format.js";

// Owner, its name, its colour. Recordings call them with or without "_bytes".
const OWNERS = [
  ["parameters", "Parameters", "parameters"],
  ["gradients", "Gradients", "gradients"],
  ["optimizer", "Optimizer states", "optimizer"],
  ["optimizer_state", "Optimizer states", "optimizer"],
  ["buffers", "Buffers", "buffers"],
  ["batch", "Batch", "batch"],
  ["activations", "Activations", "activations"],
  ["temporaries", "Inputs and temporaries", "batch"],
  ["outputs", "Outputs and other kept tensors", "outputs"],
  ["other", "Other", "other"],
];
const NOTABLE = 0.03;

export async function peakPanel(container, page, row, capacity, isHighest) {
  const ticket = (container.dataset.ticket = String(Number(container.dataset.ticket ?? 0) + 1));
  const { owners, contents } = page.details.owners.length || page.details.contents.length ? await page.source.owners(page.at, row.batch) : {};
  if (container.dataset.ticket !== ticket) return;
  const known = page.details.peak?.allocated_peak_bytes !== null;
  const title = !known ? "One batch" : isHighest ? "Explain the peak: the highest of the run" : "Explain the peak";
  replace(container,
    h("div", { className: "row" }, h("h2", null, title), h("span", { className: "grow" }),
      isHighest ? h("span", { className: "muted" }, "Click a batch in the chart to explain that one") : h("button", { onclick: () => page.view.pin?.(null) }, known ? "Back to the highest peak" : "Back")),
    h("p", { className: "lead", id: "peak-lead" }, h("strong", null, `Batch ${formatCount(row.batch)}`), ` (${row.stage}) `, row.allocated_peak_bytes === null ? "has no allocated peak: this device does not tell it" : ["peaked at ", h("strong", { id: "peak-bytes" }, formatBytes(row.allocated_peak_bytes))],
      capacity && row.allocated_peak_bytes !== null ? `, ${formatShare(row.allocated_peak_bytes, capacity)} of ${formatBytes(capacity)}. ` : ". ", sentence(page, row)),
    contents ? contentsPart(contents, row) : null,
    h("div", { className: "columns" }, [owners && !contents ? h("div", null, ownersPart(owners, row)) : null, differences(page, row)]));
  container.dataset.batch = row.batch;
}

// How much of the peak stood there before the batch began, and how much the batch itself added.
function sentence(page, row) {
  const median = page.details.medians[row.stage];
  if (!median || row.allocated_peak_bytes === null || median.allocated_peak_bytes === null || row.allocated_start_bytes === null || median.allocated_start_bytes === null) return "";
  const above = row.allocated_peak_bytes - median.allocated_peak_bytes;
  if (Math.abs(above) < NOTABLE * row.allocated_peak_bytes) return `That is an ordinary ${row.stage} batch of this run.`;
  const floor = row.allocated_start_bytes - median.allocated_start_bytes;
  const text = `That is ${formatBytes(Math.abs(above))} ${above > 0 ? "above" : "below"} the median ${row.stage} batch: `;
  const during = above - floor;
  const parts = [];
  if (Math.abs(floor) >= NOTABLE * Math.abs(above)) parts.push(`${formatBytes(Math.abs(floor))} ${floor > 0 ? "more" : "less"} was allocated before it began`);
  if (Math.abs(during) >= NOTABLE * Math.abs(above)) parts.push(`the batch itself took ${formatBytes(Math.abs(during))} ${during > 0 ? "more" : "less"}`);
  const growing = page.details.findings.filter((each) => grownBytes(each, row.batch) > 0.05 * above);
  const cause = floor > 0.3 * above && above > 0 ? growing.sort((a, b) => grownBytes(b, row.batch) - grownBytes(a, row.batch))[0] : null;
  return `${text}${parts.join(", and ")}.${cause ? ` See ${cause.code}${cause.file ? ` in ${formatPlace(cause.file, cause.line)}` : ""}.` : ""}`;
}

export function ownersBar(owners, total) {
  const bytes = (name) => owners[`${name}_bytes`] ?? owners[name] ?? 0;
  const rest = owners.activations_bytes === undefined && owners.activations === undefined;
  const label = (name, text) => (rest && name === "other" ? "Activations and other" : text);
  const known = OWNERS.filter(([name]) => bytes(name) > 0).map(([name, text, hue]) => [name, label(name, text), hue, bytes(name)]);
  const sum = known.reduce((all, [, , , nbytes]) => all + nbytes, 0);
  const whole = Math.max(total ?? 0, sum) || 1;
  return h("div", { className: "owners" },
    h("div", { className: "stack", role: "img", "aria-label": known.map(([, text, , nbytes]) => `${text} ${formatBytes(nbytes)}`).join(", ") },
      known.map(([, text, hue, nbytes]) => h("div", { className: "owner", style: { width: `${(100 * nbytes) / whole}%`, background: `var(--${hue})` }, title: `${text}: ${formatBytes(nbytes)}` }))),
    h("ul", null, known.map(([name, text, hue, nbytes]) => h("li", { data: { owner: name } }, h("span", { className: "swatch", style: { background: `var(--${hue})` } }), h("span", { className: "grow" }, text), h("span", { className: "number" }, formatBytes(nbytes)), h("span", { className: "number muted share" }, formatShare(nbytes, sum))))));
}

function ownersPart(owners, row) {
  const where = owners.batch === row.batch ? "Owned by" : `Owned by, as recorded at batch ${formatCount(owners.batch)}`;
  return [h("h3", null, where), ownersBar(owners)];
}

export function list(title, entries, read) {
  if (!Array.isArray(entries) || !entries.length) return null;
  const rows = entries.filter(Array.isArray).slice(0, 8).map(read).filter(([, nbytes]) => Number.isFinite(nbytes));
  const most = Math.max(...rows.map(([, nbytes]) => nbytes), 1);
  return h("div", { className: "bars" }, h("h3", null, title), rows.map(([label, nbytes]) => h("div", { className: "barline" }, h("div", { className: "fill", style: { width: `${(100 * nbytes) / most}%` } }), label, h("span", { className: "grow" }), h("span", { className: "number" }, formatBytes(nbytes)))));
}

function differences(page, row) {
  const median = page.details.medians[row.stage];
  if (!median) return null;
  const sizes = [
    ["Allocated at start", row.allocated_start_bytes, median.allocated_start_bytes],
    ["Added by the batch", minus(row.allocated_peak_bytes, row.allocated_start_bytes), minus(median.allocated_peak_bytes, median.allocated_start_bytes)],
    ["Peak", row.allocated_peak_bytes, median.allocated_peak_bytes],
    ["Kept at its end", minus(row.allocated_end_bytes, row.allocated_start_bytes), minus(median.allocated_end_bytes, median.allocated_start_bytes)],
    ["Reserved", row.reserved_peak_bytes, median.reserved_peak_bytes],
    ["Reserved, not allocated", minus(row.reserved_peak_bytes, row.allocated_peak_bytes), minus(median.reserved_peak_bytes, median.allocated_peak_bytes)],
    ["Host RAM", row.host_rss_bytes, median.host_rss_bytes],
  ].filter(([, mine]) => mine !== null);
  const scale = row.allocated_peak_bytes || 1;
  const rows = sizes.map(([name, mine, usual]) => {
    const more = minus(mine, usual);
    const level = more !== null && Math.abs(more) > NOTABLE * scale ? (more > 0 ? "more" : "less") : "muted";
    return [name, formatBytes(mine), formatBytes(usual), h("span", { className: level }, more === null ? "" : formatDifference(more))];
  });
  const shapes = page.details.shapes;
  const input = (text) => h("span", { className: "shapes" }, text);
  if (row.shapes !== null) rows.push(["Input", input(shapes[row.shapes] ?? `number ${row.shapes}`), input(shapes[median.shapes] ?? ""), row.shapes === median.shapes ? h("span", { className: "muted" }, "same") : h("span", { className: "more" }, "other")]);
  rows.push(["Duration", formatSeconds(row.seconds), formatSeconds(median.seconds), ""]);
  return h("div", null, h("h3", null, `What differed from the median ${row.stage} batch`), table(["What", "This batch", "Median", "Difference"], rows, { numeric: [1, 2, 3], className: "differences" }));
}

function minus(a, b) {
  return a === null || b === null || a === undefined || b === undefined ? null : a - b;
}
