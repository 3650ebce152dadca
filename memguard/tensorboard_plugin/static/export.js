// What can be taken out of the page: rows as CSV, charts as SVG and PNG, words as Markdown.

import { h, svg } from "./dom.js";
import { formatBytes } from "./format.js";
import { color } from "./theme.js";

export function save(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Copies a text, and says so on the button; where the browser refuses, the text is there to be copied by hand.
export async function copy(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  } catch {
    const field = h("textarea", { className: "copy", readOnly: true, value: text, "aria-label": "Copy this text", onblur: () => field.replaceWith(button) });
    button.replaceWith(field);
    field.select();
  }
}

export function rowsCsv(series) {
  const names = Object.keys(series.columns);
  const cell = (name, value) => (Number.isNaN(value) ? "" : name === "stage" ? series.stages[value] ?? "" : String(value));
  const lines = [names.join(",")];
  for (let at = 0; at < series.rows; at += 1) lines.push(names.map((name) => cell(name, series.columns[name][at])).join(","));
  return `${lines.join("\n")}\n`;
}

export function findingMarkdown(finding, run) {
  const place = finding.file ? `\`${finding.file}:${finding.line ?? "?"}\`${finding.function ? ` in \`${finding.function}()\`` : ""}` : null;
  const began = finding.since === null ? "Detected" : `Began in batch ${finding.since}, detected`;
  return [`### ${finding.code} ${finding.name} (${finding.severity})`, "", finding.message, "", `**Fix:** ${finding.advice}`, "", ...[place && `- Line: ${place}`, finding.holder && `- Held by: \`${finding.holder}\``, `- ${began} in batch ${finding.first_batch} of run \`${run}\``].filter(Boolean), ""].join("\n");
}

// The chart as it is, with its title, on a ground of its own.
export function chartPng(chart, title) {
  const from = chart.ctx.canvas;
  const ratio = devicePixelRatio;
  const canvas = h("canvas", { width: from.width, height: from.height + 30 * ratio });
  const context = canvas.getContext("2d");
  context.fillStyle = color("panel");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = color("text");
  context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
  context.fillText(title, 8 * ratio, 19 * ratio);
  context.drawImage(from, 0, 30 * ratio);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

// The same in lines and letters, from the chart's own scales. Curves: [label, colour] in the order of its series; findings as the
// chart marks them: [{code, severity, since, first_batch}].
export function chartSvg(chart, title, curves, capacity, findings) {
  const [width, height] = [chart.width, chart.height + 50];
  const inner = chart.over.getBoundingClientRect();
  const outer = chart.root.getBoundingClientRect();
  const [left, top] = [inner.left - outer.left, inner.top - outer.top + 50];
  const text = (x, y, content, more = {}) => svg("text", { x, y, "font-size": 11, "font-family": "system-ui, sans-serif", fill: color("text"), ...more }, content);
  const x = (value) => (left + chart.valToPos(value, "x")).toFixed(1);
  const y = (value) => (top + chart.valToPos(value, "y")).toFixed(1);
  const [across, up] = chart.axes;
  const picture = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` },
    svg("rect", { width, height, fill: color("panel") }), text(8, 18, title, { "font-size": 13, "font-weight": 600 }),
    svg("clipPath", { id: "inside" }, svg("rect", { x: left, y: top, width: inner.width, height: inner.height })));
  (up._splits ?? []).forEach((split, at) => picture.append(svg("line", { x1: left, x2: left + inner.width, y1: y(split), y2: y(split), stroke: color("grid") }), text(left - 6, Number(y(split)) + 4, String(up._values[at] ?? ""), { "text-anchor": "end", fill: color("muted") })));
  (across._splits ?? []).forEach((split, at) => picture.append(text(x(split), top + inner.height + 18, String(across._values[at] ?? ""), { "text-anchor": "middle", fill: color("muted") })));
  let along = 8;
  curves.forEach(([label, hue], number) => {
    if (!chart.series[number + 1].show) return;
    const values = chart.data[number + 1];
    const points = Array.from(chart.data[0], (batch, at) => (values[at] === null || values[at] === undefined ? null : `${x(batch)},${y(values[at])}`)).filter(Boolean);
    picture.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: hue, "stroke-width": 1.25, "clip-path": "url(#inside)" }), svg("rect", { x: along, y: 28, width: 10, height: 10, fill: hue }), text(along + 15, 37, label));
    along += 30 + 7 * label.length;
  });
  const inside = { "clip-path": "url(#inside)" };
  if (capacity && y(capacity) >= top) picture.append(svg("line", { ...inside, class: "capacity", x1: left, x2: left + inner.width, y1: y(capacity), y2: y(capacity), stroke: color("capacity"), "stroke-dasharray": "6 4" }), text(left + 6, y(capacity) - 6, `capacity ${formatBytes(capacity)}`, { fill: color("capacity") }));
  const upright = (kind, batch, hue, more) => picture.append(svg("line", { ...inside, class: kind, "data-batch": batch, x1: x(batch), x2: x(batch), y1: top, y2: top + inner.height, stroke: hue, "stroke-width": 1.25, ...more }));
  for (const { code, severity, since, first_batch: detected } of findings) {
    if (since !== null) upright("began", since, color(severity), { "stroke-dasharray": "4 3" });
    upright("detected", detected, color(severity), {});
    picture.append(text(Number(x(detected)) + 3, top + 10, String(code), { ...inside, fill: color(severity), "font-weight": 600 }));
  }
  return new XMLSerializer().serializeToString(picture);
}
