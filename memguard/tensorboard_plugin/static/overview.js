// All runs: capacity, peak, headroom, findings and a sparkline of each; several chosen by a regular expression, compared.

import uPlot from "./vendor/uPlot.esm.min.js";
import { memoryChart } from "./chart.js";
import { h, replace, sortable, svg } from "./dom.js";
import { formatAgo, formatBytes, formatCount, formatPlace, formatShare } from "./format.js";
import { color } from "./theme.js";

const MOST = 8;
const HUES = ["run-0", "run-1", "run-2", "run-3", "run-4", "run-5", "run-6", "run-7"];

export async function overview(page, container) {
  const view = new Overview(page, container);
  await view.draw();
  return view;
}

function bytesOf(rank) {
  return rank.peak?.allocated_peak_bytes ?? null;
}

// A run's worst rank, and sums over its ranks.
function outline(run) {
  const peak = (rank) => bytesOf(rank) ?? -1;
  const worst = run.ranks.reduce((high, rank) => (peak(rank) > peak(high) ? rank : high), run.ranks[0]);
  const sum = (read) => run.ranks.reduce((all, rank) => all + (read(rank) ?? 0), 0);
  const level = (name) => sum((rank) => rank.findings?.[name]);
  const finding = run.ranks.map((rank) => rank.worst).filter(Boolean).sort((a, b) => ["critical", "warning", "info"].indexOf(a.severity) - ["critical", "warning", "info"].indexOf(b.severity))[0];
  return { worst, finding, ooms: sum((rank) => rank.ooms), count: Math.max(...run.ranks.map((rank) => rank.count ?? 0)), time: Math.max(...run.ranks.map((rank) => rank.time ?? 0)), counts: { critical: level("critical"), warning: level("warning"), info: level("info") } };
}

class Overview {
  constructor(page, container) {
    this.page = page;
    this.chosen = null;
    this.list = h("div");
    this.plot = h("div", { className: "plot" });
    this.key = h("div", { className: "legend" });
    this.note = h("span", { className: "muted" });
    this.filter = h("input", { type: "search", id: "filter", placeholder: "Filter runs, a regular expression", "aria-label": "Filter runs by a regular expression", value: page.state.filter, oninput: () => this.filtered() });
    this.along = h("select", { id: "along", onchange: () => {
      this.isAligned = true;
      return this.draw();
    } }, h("option", { value: "batch" }, "batches"), h("option", { value: "share" }, "each run's own length, in %"));
    this.comparison = h("section", { className: "panel", "aria-label": "Comparison" }, h("div", { className: "row" }, h("h2", null, "Peaks compared"), h("span", { className: "grow" }), h("label", null, h("span", { className: "muted" }, "Along"), this.along)), this.key, this.plot);
    replace(container, h("div", { className: "row" }, this.filter, this.note), this.list, this.comparison);
  }

  matching() {
    this.isWrong = false;
    try {
      const pattern = new RegExp(this.page.state.filter, "i");
      this.filter.classList.remove("wrong");
      return this.page.runs.filter((run) => pattern.test(run.name));
    } catch {
      this.filter.classList.add("wrong");
      this.isWrong = true;
      return this.page.runs;
    }
  }

  async filtered() {
    this.page.state.filter = this.filter.value;
    this.page.tellAddress();
    this.chosen = null;
    await this.draw();
  }

  async draw() {
    const runs = this.matching();
    this.chosen ??= new Set(runs.slice(0, MOST).map((run) => run.name));
    this.note.textContent = this.isWrong ? `This is no regular expression yet: all ${this.page.runs.length} runs are listed` : `${runs.length} of ${this.page.runs.length} runs`;
    const facts = new Map(runs.map((run) => [run, outline(run)]));
    const cells = new Map();
    const cell = (run, at) => {
      if (!cells.has(run)) cells.set(run, this.cells(run, facts.get(run)));
      return cells.get(run)[at];
    };
    const severity = ({ ooms, counts }) => 1e9 * ooms + 1e6 * counts.critical + 1e3 * counts.warning + counts.info;
    const reads = [(run) => (this.chosen.has(run.name) ? 1 : 0), (run) => run.name, (run) => bytesOf(facts.get(run).worst), (run) => bytesOf(facts.get(run).worst), (run) => facts.get(run).worst.headroom_bytes ?? null, (run) => facts.get(run).count, (run) => severity(facts.get(run)), (run) => run.name];
    const titles = ["Compare", "Run", "Peak over time", "Peak", "Headroom", "Batches", "Findings", ""];
    const columns = titles.map((title, at) => ({ title, read: reads[at], show: (run) => cell(run, at), numeric: at === 4 || at === 5, down: at > 1 }));
    const each = (made, shown) => made.querySelectorAll("tbody tr").forEach((row, at) => (row.dataset.run = shown[at].name));
    replace(this.list, runs.length ? sortable(columns, runs, { by: 1, up: true, className: "runs", each }) : h("p", { className: "calm" }, "No run has a name that matches. ", h("button", { onclick: () => {
      this.filter.value = "";
      return this.filtered();
    } }, "Show all runs")));
    await this.compare(runs.filter((run) => this.chosen.has(run.name) && run.ranks.some((rank) => !rank.problem)).slice(0, MOST));
  }

  cells(run, { worst, finding, ooms, count, time, counts }) {
    const peak = bytesOf(worst);
    const capacity = worst.device_total_bytes ?? null;
    const room = worst.headroom_bytes ?? null;
    const open = () => this.page.go("timeline", { run: run.name });
    const badges = Object.entries(counts).filter(([, number]) => number).map(([level, number]) => h("span", { className: `badge ${level}`, title: level }, String(number)));
    if (ooms) badges.push(h("span", { className: "badge oom" }, "OOM"));
    const share = peak !== null && capacity ? Math.min(100, (100 * peak) / capacity) : 0;
    return [
      h("input", { type: "checkbox", checked: this.chosen.has(run.name), "aria-label": `Compare ${run.name}`, onchange: (event) => this.choose(run.name, event.target.checked) }),
      h("div", { className: "name" }, h("button", { className: "link", onclick: open, title: run.name }, run.name), h("div", { className: "muted small" }, worst.problem ?? [worst.device_name ?? worst.device, run.ranks.length > 1 ? `${run.ranks.length} ranks, worst is rank ${worst.rank}` : null].filter(Boolean).join(" \u00b7 "))),
      sparkline(worst.sparkline ?? [], capacity),
      [h("div", { className: "number" }, formatBytes(peak)), capacity ? h("div", { className: "meter" }, h("div", { style: { width: `${share}%` } })) : null, capacity ? h("div", { className: "muted small" }, `of ${formatBytes(capacity)}`) : null].filter(Boolean),
      room !== null ? [formatBytes(room), h("div", { className: "muted small" }, formatShare(room, capacity))] : "",
      [worst.pending ? "reading \u2026" : formatCount(count), h("div", { className: "muted small" }, time && this.page.time ? formatAgo(time, this.page.time) : "")],
      h("div", { className: "found" }, badges.length ? badges : h("span", { className: "muted" }, "none"), finding ? h("div", { className: "small" }, [finding.name, formatPlace(finding.file, finding.line)].filter(Boolean).join(" \u00b7 ")) : null),
      h("button", { onclick: open }, "Open"),
    ];
  }

  choose(name, isChosen) {
    if (isChosen) this.chosen.add(name);
    else this.chosen.delete(name);
    return this.draw();
  }

  async compare(runs) {
    const ticket = (this.ticket = (this.ticket ?? 0) + 1);
    const bands = await Promise.all(runs.map((run) => this.page.source.ranks(run.name, 0, null, null, Math.max(200, Math.round(this.plot.clientWidth / 2)))));
    if (ticket !== this.ticket) return;
    this.chart?.destroy();
    this.chart = null;
    const shown = runs.map((run, at) => [run, bands[at]]).filter(([, band]) => band.batch.length);
    this.comparison.hidden = !shown.length;
    if (!shown.length) return;
    const lengths = shown.map(([, band]) => band.batch[band.batch.length - 1] - band.batch[0] + 1);
    if (!this.isAligned) this.along.value = Math.max(...lengths) > 4 * Math.min(...lengths) ? "share" : "batch";
    const joined = uPlot.join(shown.map(([, band]) => [this.places(band.batch), band.low, band.high]));
    const hue = (at) => color(HUES[at % HUES.length]);
    const capacities = new Set(shown.map(([run]) => outline(run).worst.device_total_bytes));
    this.chart = memoryChart(this.plot, {
      width: this.plot.clientWidth, height: 260, labels: true, capacity: capacities.size === 1 ? [...capacities][0] ?? null : null,
      series: shown.flatMap((_, at) => [{ label: "lowest", color: "transparent", width: 0 }, { label: "highest", color: hue(at), width: 1.5 }]),
      bands: shown.map(([run], at) => (run.ranks.length > 1 ? { series: [2 * at + 2, 2 * at + 1], fill: `${hue(at)}33` } : null)).filter(Boolean),
      state: () => ({}),
      onZoom: (min, max) => this.chart.setScale("x", { min, max }),
      onReset: () => this.chart.setScale("x", { min: joined[0][0], max: joined[0][joined[0].length - 1] }),
    }, joined);
    replace(this.key, shown.map(([run], at) => h("span", { className: "key" }, h("span", { className: "swatch", style: { background: hue(at) } }), run.name)));
    this.comparison.dataset.runs = shown.length;
  }

  // Batch numbers, or percent of the run so that runs of different length can be compared.
  places(batches) {
    if (this.along.value === "batch") return batches;
    const [first, last] = [batches[0], batches[batches.length - 1]];
    return batches.map((batch) => (100 * (batch - first)) / Math.max(1, last - first));
  }

  update() {
    return this.draw();
  }

  destroy() {
    this.ticket = -1;
    this.chart?.destroy();
  }
}

function sparkline(values, capacity) {
  const [width, height] = [150, 30];
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "sparkline", "aria-hidden": "true" });
  if (values.length < 2) return picture;
  const top = Math.max(...values, capacity && Math.max(...values) > 0.3 * capacity ? capacity : 0, 1);
  const points = values.map((value, at) => `${((width * at) / (values.length - 1)).toFixed(1)},${(height - (height - 2) * Math.max(0, value / top)).toFixed(1)}`);
  picture.append(svg("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "area" }), svg("polyline", { points: points.join(" "), class: "line" }));
  return picture;
}
