// Two runs beside each other, the largest difference first; as `memguard report --compare` tells it.

import { h, replace, sortable, table } from "./dom.js";
import { formatBytes, formatDifference, formatPlace } from "./format.js";
import { inline } from "./markdown.js";

export async function comparison(page, container) {
  const { state } = page;
  const others = page.runs.map((run) => run.name).filter((name) => name !== state.run);
  if (!others.includes(state.other)) state.other = usual(page, others);
  const choose = h("select", { id: "other", onchange: () => page.go("compare", { other: choose.value }) }, others.map((name) => h("option", { value: name, selected: name === state.other }, name)));
  const swap = h("button", { onclick: () => page.go("compare", { run: state.other, other: state.run }) }, "Swap");
  const place = h("div", null, h("p", { className: "muted" }, "Reading both runs \u2026"));
  replace(container, h("div", { className: "row" }, h("h1", null, state.run), h("label", null, h("span", { className: "muted" }, "compared with the earlier run"), choose), swap), place);
  draw(place, await page.source.compare(state.run, state.other));
  return {};
}

// The run before this one in time, else the next.
function usual(page, others) {
  const time = (name) => Math.max(...page.runs.find((run) => run.name === name).ranks.map((rank) => rank.time ?? 0));
  const [newest, ...older] = [...others].sort((a, b) => time(b) - time(a));
  return [newest, ...older].find((name) => time(name) <= time(page.state.run)) ?? newest;
}

function draw(place, answer) {
  const [peak] = answer.differences;
  const more = peak.difference_bytes;
  const share = more && peak.before_bytes ? `, ${((100 * Math.abs(more)) / peak.before_bytes).toFixed(1)} %` : "";
  const title = !more ? `The ${peak.what} is the same: ${formatBytes(peak.after_bytes)}` : `${peak.what[0].toUpperCase()}${peak.what.slice(1)}: ${formatBytes(Math.abs(more))} ${more > 0 ? "more" : "less"}${share}`;
  const known = answer.differences.filter((each) => each.before_bytes !== null || each.after_bytes !== null);
  const finding = (level, each, note) => h("li", { data: { code: each.code } }, h("span", { className: `badge ${each.severity}` }, each.code), ` ${level}: `, each.file ? [h("code", { title: `${each.file}:${each.line}` }, formatPlace(each.file, each.line)), " "] : null, inline(each.message), note ? ` (${note})` : null);
  const findings = [
    ...answer.new_findings.map((each) => finding("new", each)), ...answer.gone_findings.map((each) => finding("gone", each)),
    ...answer.changed_findings.map(({ before, after }) => finding("changed", after, [before.severity !== after.severity ? `was ${before.severity}` : null, before.bytes !== null && before.bytes !== after.bytes ? `was ${formatBytes(before.bytes)}` : null].filter(Boolean).join(", "))),
  ];
  replace(place,
    h("section", { className: `headline ${more > 0 ? "warning" : ""}` }, h("div", { className: "grow" }, h("h1", { id: "difference", data: { bytes: more } }, title), peak.before_bytes !== null && more ? h("p", null, `${formatBytes(peak.before_bytes)} before, ${formatBytes(peak.after_bytes)} now.`) : null)),
    h("section", { className: "panel", id: "differences" }, h("h2", null, "Peaks, phases and owners"), sortable([
      { title: "What", read: (each) => each.what, show: (each) => each.what },
      { title: "Before", read: (each) => each.before_bytes, show: (each) => formatBytes(each.before_bytes), numeric: true },
      { title: "Now", read: (each) => each.after_bytes, show: (each) => formatBytes(each.after_bytes), numeric: true },
      { title: "Difference", read: (each) => Math.abs(each.difference_bytes), show: (each) => h("span", { className: each.difference_bytes > 0 ? "more" : each.difference_bytes < 0 ? "less" : "muted" }, formatDifference(each.difference_bytes)), numeric: true },
    ], known, { by: 3 })),
    h("section", { className: "panel" }, h("h2", null, "Findings"), findings.length ? h("ul", { className: "advice-list" }, findings) : h("p", { className: "muted" }, "Both runs have the same findings.")),
    h("section", { className: "panel" }, h("h2", null, "Settings and versions"), answer.settings.length ? table(["Setting", "Before", "Now"], answer.settings.map((each) => [each.name, h("code", null, each.before ?? "not set"), h("code", null, each.after ?? "not set")])) : h("p", { className: "muted" }, "Both runs have the same.")));
}
