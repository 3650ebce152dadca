// What is wrong: the headline, the flags above the chart, and the list of causes by severity.

import { link } from "./address.js";
import { h, replace } from "./dom.js";
import { copy, findingMarkdown } from "./export.js";
import { formatBytes, formatCount, formatPlace } from "./format.js";
import { inline } from "./markdown.js";

const NARROW = 600; // of a chart: flags have the rule's code alone
const TITLES = { critical: "Critical", warning: "Warnings", info: "Good to know" };

// The batch in which its memory began to come: before it was detected, where that is known.
export function beganIn(finding) {
  return finding.since ?? finding.first_batch;
}

export function showFinding(page, finding) {
  const { first_batch: begin = 0, last_batch: end = 1 } = page.details;
  const span = finding.last_batch - beganIn(finding);
  const pad = Math.max(20, 0.25 * span, span ? 0 : 0.05 * (end - begin));
  const x0 = Math.floor(Math.max(begin, beganIn(finding) - pad));
  const x1 = Math.ceil(Math.min(end, finding.last_batch + pad));
  const whole = x0 <= begin && x1 >= end;
  return page.go("timeline", { x0: whole ? null : x0, x1: whole ? null : x1, pinned: beganIn(finding), rank: finding.rank === page.at.rank ? page.state.rank : page.at.rank });
}

// Whether a finding is marked in the chart: trouble, or growth of any size.
export function isMarked(finding) {
  return finding.severity !== "info" || finding.bytes_per_batch > 0;
}

// What a growing finding has added to the run by a batch, at its own pace.
export function grownBytes(finding, batch) {
  return finding.bytes_per_batch > 0 ? finding.bytes_per_batch * Math.max(0, batch - beganIn(finding)) : 0;
}

// The finding to begin with: by severity, but growth that fills a good part of the peak outranks a warning.
function mostImportant(details) {
  const peak = details.peak?.allocated_peak_bytes ?? Infinity;
  const weight = (each) => ({ critical: 4, warning: 2 })[each.severity] ?? (isMarked(each) ? 0 : -9);
  const total = (each) => weight(each) + (grownBytes(each, details.last_batch) > 0.05 * peak ? 3 : 0);
  return details.findings.filter((each) => total(each) > 0).sort((a, b) => total(b) - total(a))[0];
}

// Like "began in batch 620, detected in batch 632".
function whenSeen(finding) {
  return `${finding.since === null ? "" : `began in batch ${formatCount(finding.since)}, `}detected in batch ${formatCount(finding.first_batch)}`;
}

// The one sentence a newcomer needs: what, which line, since when.
export function headline(page) {
  const { end, findings, ooms, peak } = page.details;
  const worst = mostImportant(page.details);
  if (!worst) {
    return h("section", { className: "headline" }, h("div", { className: "grow" }, h("h1", null, ooms.length ? `Out of memory in batch ${formatCount(ooms[ooms.length - 1].batch)}` : "Nothing to worry about"),
      h("p", null, peak ? "memguard found no memory trouble in this run." : end ? "The run ended without a batch." : "No batch is recorded yet.")));
  }
  const oom = ooms[ooms.length - 1];
  return h("section", { className: `headline ${worst.severity === "critical" ? "critical" : "warning"}` },
    h("div", { className: "grow" },
      h("h1", null, worst.file ? h("code", { className: "place", title: `${worst.file}:${worst.line}` }, formatPlace(worst.file, worst.line)) : null, worst.holder ? h("code", null, worst.holder) : null,
        h("span", null, `${worst.file || worst.holder ? String(worst.name).replaceAll("-", " ") : title(worst.name)}, ${whenSeen(worst)}`)),
      h("p", null, inline(worst.message)), h("p", { className: "advice" }, h("strong", null, "Fix: "), inline(worst.advice))),
    h("div", { className: "acts" }, h("button", { className: "primary", onclick: () => showFinding(page, worst) }, worst.since === null ? "Show where it was detected" : "Show where it began"),
      oom ? h("button", { onclick: () => page.go("oom", { oom: oom.id ?? null }) }, `Out of memory in batch ${formatCount(oom.batch)}`) : null,
      findings.length > 1 ? h("button", { onclick: () => page.go("findings") }, `All ${findings.length} findings`) : null));
}

// Flags over the chart where each finding was detected, in up to three lines without overlap: each begins at its place, or ends there.
export function chips(container, page, place, width) {
  const flag = (at, level, text, hint, onclick) => at !== null && { at, element: h("button", { className: `chip ${level}`, title: hint, onclick }, text) };
  const name = (finding) => (width < NARROW ? [finding.code] : [finding.code, finding.name, formatPlace(finding.file, finding.line)]).filter(Boolean).join(" \u00b7 ");
  const flags = [
    ...page.details.findings.filter(isMarked).map((each) => flag(place(each.first_batch), each.severity, name(each), `${title(whenSeen(each))}. ${each.message}`, () => showFinding(page, each))),
    ...page.details.ooms.map((each) => flag(place(each.batch), "oom", "out of memory", String(each.message ?? ""), () => page.go("oom", { oom: each.id ?? null }))),
  ].filter(Boolean);
  replace(container, flags.map((each) => each.element));
  const ends = [0, 0, 0];
  for (const { at, element } of flags.sort((a, b) => a.at - b.at)) {
    const turned = at + element.offsetWidth > width;
    element.classList.toggle("turned", turned);
    const left = Math.max(0, turned ? at - element.offsetWidth : at);
    const line = ends.findIndex((end) => end <= left);
    element.hidden = line < 0;
    if (line < 0) continue;
    ends[line] = left + element.offsetWidth + 6;
    Object.assign(element.style, { left: `${left}px`, top: `${line * 24}px` });
  }
  container.style.height = `${24 * ends.filter(Boolean).length}px`;
}

function title(name) {
  const text = String(name).replaceAll("-", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// What tells a finding from the others in an address.
export function keyOf(finding) {
  return [finding.code, finding.file ? formatPlace(finding.file, finding.line) : null, finding.holder].filter(Boolean).join(" ");
}

// The code around a finding's line, as it was when the finding was reported; the line itself is marked.
function codePart(finding) {
  const { first, lines } = finding.code_lines ?? { lines: [] };
  if (!lines.length) return null;
  return h("ol", { className: "code", start: first, "aria-label": `Code around line ${finding.line}` }, lines.map((text, at) => {
    const marked = first + at === finding.line;
    return h("li", { className: marked ? "marked" : "", "aria-current": marked ? "true" : null, data: { line: first + at } }, text || " ");
  }));
}

// Opens the line in an editor; null where the file has no path of its own: a notebook's cell.
function editorAddress(file, line) {
  const path = String(file).replaceAll("\\", "/");
  if (!/^(\/|[A-Za-z]:\/)/.test(path)) return null;
  return `vscode://file/${encodeURI(path.replace(/^\/+/, "")).replaceAll("#", "%23").replaceAll("?", "%3F")}:${line ?? 1}`;
}

// One finding; of others than the first of its cause also the rule.
function card(page, finding, first) {
  const place = finding.file ? `${finding.file}:${finding.line ?? "?"}` : null;
  const editor = place && editorAddress(finding.file, finding.line);
  const facts = [
    place ? ["Line", editor ? h("a", { href: editor, title: "Open in VS Code" }, h("code", null, place)) : h("code", null, place)] : null,
    finding.function ? ["Function", h("code", null, `${finding.function}()`)] : null,
    finding.holder ? ["Held by", h("code", null, finding.holder)] : null,
    finding.since === null ? null : ["Began", `batch ${formatCount(finding.since)}`],
    ["Detected", `batch ${formatCount(finding.first_batch)}`],
    finding.last_batch > finding.first_batch ? ["Last reported", `batch ${formatCount(finding.last_batch)}`] : null,
    finding.bytes ? ["Memory", formatBytes(finding.bytes)] : null,
    finding.bytes_per_batch ? ["Growth", `${formatBytes(finding.bytes_per_batch)} per batch`] : null,
    finding.count > 1 ? ["Seen", `${formatCount(finding.count)} times`] : null,
  ].filter(Boolean);
  return h("article", { className: `finding${page.state.finding === keyOf(finding) ? " chosen" : ""}`, data: { code: String(finding.code) } },
    h("header", null, finding === first ? null : h("span", { className: `badge ${finding.severity}` }, String(finding.code)), h("h4", null, finding.code === first.code ? null : `${title(finding.name)} `, place ? h("code", null, formatPlace(finding.file, finding.line)) : "The whole run", finding.holder ? [" ", h("code", null, finding.holder)] : null), h("span", { className: "grow" }),
      h("button", { title: "Copy the address of this finding", onclick: (event) => {
        page.state.finding = keyOf(finding);
        page.tellAddress();
        return copy(event.target, link());
      } }, "Copy link"), h("button", { onclick: (event) => copy(event.target, findingMarkdown(finding, page.state.run)) }, "Copy as Markdown"),
      h("button", { onclick: () => showFinding(page, finding) }, "Show on the timeline")),
    h("p", null, inline(finding.message)),
    codePart(finding),
    h("p", { className: "advice" }, h("strong", null, "Fix: "), inline(finding.advice)),
    h("dl", null, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)))));
}

// The rule's example as a difference of two programs.
function examplePart(difference, code) {
  if (!difference) return null;
  const kind = { "-": "before", "+": "after" };
  return h("details", { className: "example" }, h("summary", null, code ? `Example of ${code}: before and after` : "Example: before and after"),
    h("p", { className: "muted small" }, "Lines with \u2212 cause the finding, lines with + replace them."),
    h("div", { className: "code" }, difference.trimEnd().split("\n").map((line) => h("div", { className: `line ${kind[line[0]] ?? ""}` }, line || " "))));
}

function silencePart(code) {
  return h("p", { className: "silence muted small" }, "Is it meant? ", h("code", null, `with memguard.allow("${code}"):`), " around the place silences it there, ", h("code", null, `ignore=["${code}"]`), " (", h("code", null, `memguard run --ignore ${code}`), ") in the whole run. ",
    h("code", null, `memguard explain ${code}`), " explains the rule.");
}

// Whether two findings have one cause: the same line, or the same holder of one file.
function isOneCause(one, other) {
  const isSame = (name) => one[name] !== null && one[name] === other[name];
  return one.file === other.file && (isSame("line") || isSame("holder"));
}

// Findings by cause; of each the most severe first, and the causes by these.
function causesOf(found) {
  let causes = [];
  for (const finding of found) {
    const near = causes.filter((cause) => cause.some((each) => isOneCause(each, finding)));
    const joined = [...near.flat(), finding];
    causes = near.length ? causes.filter((cause) => cause === near[0] || !near.includes(cause)).map((cause) => (cause === near[0] ? joined : cause)) : [...causes, joined];
  }
  return causes;
}

// All that one cause does: each rule that reports it, these rules' examples, and how to silence them.
function causePart(page, [first, ...others]) {
  const codes = [...new Set([first, ...others].map((finding) => String(finding.code)))];
  return h("section", { className: `cause ${first.severity}`, data: { cause: codes.join(" ") } },
    h("header", null, h("span", { className: `badge ${first.severity}` }, codes[0]), h("h3", null, title(first.name)), others.length ? h("span", { className: "muted" }, `${others.length + 1} findings of one cause`) : null),
    [first, ...others].map((finding) => card(page, finding, first)), codes.flatMap((code) => [examplePart(page.details.examples?.[code], codes.length > 1 ? code : null), silencePart(code)]));
}

export function findings(page, container) {
  function draw() {
    const found = page.details.findings;
    if (!found.length) {
      replace(container, h("section", { className: "empty" }, h("h1", null, "No findings"), h("p", null, "memguard watched this run and found no memory trouble.")));
      return;
    }
    const causes = causesOf(found); // the recording's are the most severe first
    replace(container, h("h1", { className: "unseen" }, "Findings"), Object.entries(TITLES).map(([severity, heading]) => {
      const some = causes.filter(([first]) => first.severity === severity);
      return some.length ? h("section", null, h("h2", null, heading, h("span", { className: "muted" }, ` ${some.length}`)), some.map((each) => causePart(page, each))) : null;
    }));
  }
  draw();
  container.querySelector(".chosen")?.scrollIntoView({ block: "center" });
  return { update: draw };
}
