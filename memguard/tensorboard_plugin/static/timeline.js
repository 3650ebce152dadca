// The timeline: what is wrong in one sentence, the run in four numbers, the memory of every batch, and why it peaked.

import { LEFT, memoryChart, RIGHT } from "./chart.js";
import { CURVES, keys, readout } from "./curves.js";
import { h, replace } from "./dom.js";
import { chartPng, chartSvg, rowsCsv, save } from "./export.js";
import { chips, headline, isMarked } from "./findings.js";
import { formatClock, formatCount } from "./format.js";
import { peakPanel } from "./peak.js";
import { phaseBands, phaseTable } from "./phases.js";
import { rankBand, rankNote } from "./ranks.js";
import { drawable, nearestRow, rowAt, withoutStale } from "./rows.js";
import { overviewStrip } from "./strip.js";
import { color } from "./theme.js";
import { signs, tiles } from "./tiles.js";

const HEIGHT = 330;
const MOST_EXPORTED = 50_000; // stretches; of each the maxima are kept
const NOTHING_DRAWN = 96; // of a device that tells nothing: the marks of findings are all there is

export async function timeline(page, container) {
  const view = new Timeline(page, container);
  await view.open();
  return view;
}

class Timeline {
  constructor(page, container) {
    this.page = page;
    this.capacity = page.details.session.device_total_bytes ?? page.details.session.limit_bytes ?? null;
    this.shown = new Set(CURVES.filter((curve) => curve[4].show !== false).map((curve) => curve[0]));
    this.series = null;
    this.hovered = null;
    this.wanted = 0;
    this.head = h("div");
    this.ranks = h("div");
    this.tiles = h("div", { className: "tiles" });
    this.readout = h("div", { className: "readout", "aria-live": "off" });
    this.legend = h("div", { className: "legend" });
    this.plot = h("div", { className: "plot", tabIndex: 0, role: "application", "aria-label": "Memory over batches. Arrow keys pan, plus and minus zoom, Home shows the whole run, Enter explains the highest peak in view, bracket keys step through batches.", onkeydown: (event) => this.key(event) });
    this.chips = h("div", { className: "chips" });
    this.status = h("span", { className: "status muted" });
    this.strip = h("div", { className: "strip" });
    this.host = h("div", { className: "host" });
    this.signs = h("div", { className: "signs" });
    this.bands = h("div", { className: "host" });
    this.phases = h("div");
    this.peak = h("section", { className: "panel", "aria-label": "Explain the peak" });
    this.axis = h("select", { id: "axis", "aria-label": "Horizontal axis", onchange: () => [this.chart, this.hostChart].forEach((chart) => chart?.redraw(true, true)) }, h("option", { value: "batch" }, "by batch"), h("option", { value: "optimizer_steps" }, "by optimizer step"), h("option", { value: "time" }, "by time"));
    const button = (label, title, act) => h("button", { className: "tool", title, "aria-label": title, onclick: act }, label);
    this.panel = h("section", { className: "panel chart", "aria-label": "Timeline" },
      h("div", { className: "row" }, this.readout, h("span", { className: "grow" }), this.status, this.page.source.live ? this.axis : null,
        button("\u2212", "Zoom out (\u2212)", () => this.scale(2)), button("+", "Zoom in (+)", () => this.scale(0.5)), button("Whole run", "Show the whole run (Home)", () => this.zoom(null, null)),
        button("CSV", "Save the batches in view as CSV", () => this.saveRows()), button("PNG", "Save the chart as PNG", () => this.savePicture("png")), button("SVG", "Save the chart as SVG", () => this.savePicture("svg"))),
      this.legend, this.chips, this.plot, h("p", { className: "muted small hint" }, "Drag, Ctrl and the wheel, or two fingers zoom; a double click shows the whole run."), this.signs, this.bands, this.host, this.strip);
    replace(container, this.head, this.ranks, this.tiles, this.panel, this.phases, this.peak);
  }

  get whole() {
    const { first_batch: first, last_batch: last } = this.page.details;
    return [first ?? 0, Math.max(last ?? 1, (first ?? 0) + 1)];
  }

  get window() {
    const { x0, x1 } = this.page.state;
    return x0 === null ? this.whole : [x0, x1];
  }

  async open() {
    this.drawHead();
    if (!this.page.details.count) {
      replace(this.panel, h("p", { className: "calm" }, this.page.details.end ? "The run has ended; it had no batch." : "The run has begun; its first batch is still to come."));
      this.peak.hidden = true;
      return;
    }
    this.observer = new ResizeObserver(() => this.resize());
    if (this.page.state.rank === "all") {
      this.band = await rankBand(this.page, this.panel, HEIGHT, (rank, batch) => this.page.go("timeline", { rank, pinned: batch }));
      this.peak.hidden = true;
      return;
    }
    await this.fetch();
    this.makeCharts();
    replace(this.ranks, await rankNote(this.page));
    this.observer.observe(this.plot);
    await this.makeStrip();
    await this.explain();
  }

  drawHead() {
    replace(this.head, headline(this.page));
    replace(this.tiles, tiles(this.page.details, this.capacity));
    phaseTable(this.phases, this.page.details);
  }

  async fetch() {
    const ticket = ++this.wanted;
    const { x0, x1 } = this.page.state;
    const px = Math.max(200, Math.round((this.plot.clientWidth || 900) - LEFT - RIGHT));
    const series = await this.page.source.series(this.page.at, x0, x1, px);
    if (ticket !== this.wanted) return false;
    this.series = withoutStale(series);
    const { rows, total } = series;
    this.panel.dataset.rows = rows;
    this.panel.dataset.total = total;
    const full = rows >= total;
    this.status.textContent = full ? `${formatCount(total)} batches, all drawn` : `${formatCount(total)} batches, every maximum kept; zoom in for all`;
    return true;
  }

  get columns() {
    return [this.series.columns.batch, ...CURVES.map(([name]) => drawable(this.series.columns[name]))];
  }

  makeCharts() {
    this.chart?.destroy();
    this.hostChart?.destroy();
    const drawn = CURVES.some(([name]) => this.series.columns[name].some((value) => value > 0));
    const [peakAt, startAt] = ["allocated_peak_bytes", "allocated_start_bytes"].map((name) => CURVES.findIndex((curve) => curve[0] === name) + 1);
    const common = {
      width: this.plot.clientWidth,
      capacity: this.capacity,
      sync: "memguard",
      onZoom: (from, to) => this.zoom(from, to),
      onPick: (batch, reach) => this.pick(batch, reach),
      onReset: () => this.zoom(null, null),
      along: (batch) => this.along(batch),
    };
    this.chart = memoryChart(this.plot, {
      ...common,
      capacity: drawn ? this.capacity : null,
      height: (this.height = drawn ? HEIGHT : NOTHING_DRAWN),
      labels: true,
      series: CURVES.map(([name, label, hue, , style]) => ({ ...style, label, color: color(hue), show: this.shown.has(name), fill: name === "allocated_start_bytes" ? color("start-fill") : undefined })),
      bands: [{ series: [peakAt, startAt], fill: color("peak-fill") }],
      state: () => this.marks(),
      onCursor: (position, over) => this.hover(over ? position : null),
      onDrawn: () => this.drawChips(),
    }, this.columns);
    this.makeHost(common);
    this.scaleX();
    this.drawLegend();
    this.drawSigns();
  }

  drawSigns() {
    replace(this.signs, signs(this.page.details, this.series.marks));
  }

  makeHost(common) {
    const values = this.series.columns.host_rss_bytes;
    this.host.hidden = !values.some((value) => value > 0);
    replace(this.host);
    this.hostChart = null;
    if (this.host.hidden) return;
    this.host.append(h("div", { className: "muted small caption" }, "Host RAM of this process"));
    this.hostChart = memoryChart(this.host, {
      ...common,
      capacity: null,
      floor: "fit",
      height: 96,
      series: [{ label: "Host RAM", color: color("host"), width: 1.5 }],
      state: () => ({ ...this.marks(), marks: {}, findings: [] }),
    }, [this.series.columns.batch, drawable(values)]);
  }

  // What the horizontal axis says of a batch.
  along(batch) {
    const name = this.axis.value;
    const at = nearestRow(this.series, batch, 0);
    const value = name === "batch" || at < 0 ? null : this.series.columns[name][at];
    if (value === null || Number.isNaN(value)) return name === "batch" ? null : "";
    return name === "time" ? formatClock(value, this.series.columns.time) : formatCount(value);
  }

  marks() {
    return { bands: this.series.bands, stages: this.series.stages, marks: this.series.marks, findings: this.page.details.findings.filter(isMarked), pinned: this.page.state.pinned };
  }

  scaleX() {
    const [min, max] = this.window;
    for (const chart of [this.chart, this.hostChart]) chart?.setScale("x", { min, max });
    phaseBands(this.bands, this.page.details, [min, max], this.plot.clientWidth);
  }

  // What the cursor stands on, else the pinned batch, else the highest peak in view.
  drawLegend() {
    const position = this.hovered ?? this.pinnedPosition();
    const row = position === null ? null : rowAt(this.series, position);
    if (row) {
      replace(this.readout, readout(row, this.page.details.shapes));
      this.readout.dataset.batch = row.batch;
    }
    replace(this.legend, keys(this.series, row, this.shown, (name) => this.toggle(name)));
  }

  pinnedPosition() {
    const { columns } = this.series;
    if (!columns.batch.length) return null;
    const { pinned } = this.page.state;
    if (pinned !== null) return nearestRow(this.series, pinned, 0);
    let best = 0;
    for (let at = 1; at < columns.batch.length; at += 1) if (columns.allocated_peak_bytes[at] > columns.allocated_peak_bytes[best]) best = at;
    return best;
  }

  hover(position) {
    if (!this.series || position === this.hovered) return;
    this.hovered = position;
    this.drawLegend();
  }

  toggle(name) {
    if (!this.shown.delete(name)) this.shown.add(name);
    const at = CURVES.findIndex((curve) => curve[0] === name) + 1;
    this.chart.setSeries(at, { show: this.shown.has(name) });
    this.drawLegend();
    this.legend.querySelector(`[data-column="${name}"]`)?.focus();
  }

  drawChips() {
    chips(this.chips, this.page, (batch) => {
      const [low, high] = this.window;
      return !this.chart || batch < low || batch > high ? null : this.chart.valToPos(batch, "x") + LEFT;
    }, this.plot.clientWidth);
  }

  async zoom(from, to) {
    const [low, high] = this.whole;
    const { state } = this.page;
    if (from === null || (from <= low && to >= high)) {
      [state.x0, state.x1] = [null, null];
    } else {
      const width = Math.max(4, to - from);
      const start = Math.min(Math.max(low, from), Math.max(low, high - width));
      [state.x0, state.x1] = [Math.floor(start), Math.ceil(Math.min(high, start + width))];
    }
    this.page.tellAddress();
    this.scaleX();
    this.brush?.draw();
    if (await this.fetch()) this.refill();
  }

  refill() {
    this.hovered = null;
    this.chart.setData(this.columns, false);
    this.hostChart?.setData([this.series.columns.batch, drawable(this.series.columns.host_rss_bytes)], false);
    this.scaleX();
    this.drawLegend();
  }

  scale(factor) {
    const [from, to] = this.window;
    const middle = (from + to) / 2;
    const half = ((to - from) * factor) / 2;
    return this.zoom(middle - half, middle + half);
  }

  pan(share) {
    const [from, to] = this.window;
    return this.zoom(from + share * (to - from), to + share * (to - from));
  }

  key(event) {
    const acts = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.scale(0.5), "=": () => this.scale(0.5), "-": () => this.scale(2), Home: () => this.zoom(null, null),
      Enter: () => this.pinHighest(), "[": () => this.step(-1), "]": () => this.step(1), Escape: () => this.pin(null),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  pick(batch, reach) {
    const at = nearestRow(this.series, batch, reach);
    if (at >= 0) this.pin(this.series.columns.batch[at]);
  }

  pinHighest() {
    this.page.state.pinned = null;
    return this.pin(this.series.columns.batch[this.pinnedPosition()]);
  }

  step(direction) {
    const at = (this.pinnedPosition() ?? 0) + direction;
    if (at >= 0 && at < this.series.columns.batch.length) this.pin(this.series.columns.batch[at]);
  }

  async pin(batch) {
    this.page.state.pinned = batch;
    this.page.tellAddress();
    this.hovered = null;
    this.chart.redraw(false);
    this.drawLegend();
    await this.explain();
  }

  async explain() {
    const { pinned } = this.page.state;
    let row = this.page.details.peak;
    if (pinned !== null) {
      let series = this.series;
      let at = nearestRow(series, pinned, 0);
      if (series.columns.batch[at] !== pinned) {
        series = await this.page.source.series(this.page.at, pinned, pinned, 200);
        at = 0;
      }
      if (series.rows) row = rowAt(series, at);
    }
    if (row) await peakPanel(this.peak, this.page, row, this.capacity, pinned === null);
  }

  async saveRows() {
    const { x0, x1 } = this.page.state;
    save(`${this.fileName}.csv`, rowsCsv(await this.page.source.series(this.page.at, x0, x1, MOST_EXPORTED)), "text/csv");
  }

  async savePicture(kind) {
    const title = `Memory of ${this.page.at.run}, rank ${this.page.at.rank}, batches ${this.window.map(formatCount).join(" to ")}`;
    if (kind === "png") save(`${this.fileName}.png`, await chartPng(this.chart, title));
    else save(`${this.fileName}.svg`, chartSvg(this.chart, title, CURVES.map(([, label, hue]) => [label, color(hue)]), this.capacity, this.marks().findings), "image/svg+xml");
  }

  get fileName() {
    return `memory-${String(this.page.at.run).replace(/[^\w.-]+/g, "_")}-rank${this.page.at.rank}`;
  }

  async makeStrip() {
    this.brush = await overviewStrip(this.strip, this.page, () => this.window, () => this.whole, (from, to) => this.zoom(from, to));
  }

  resize() {
    const width = this.plot.clientWidth;
    if (!width || window.innerHeight === 0 || width === this.chart.width) return;
    this.chart.setSize({ width, height: this.height });
    phaseBands(this.bands, this.page.details, this.window, width);
    this.hostChart?.setSize({ width, height: 96 });
    this.brush?.draw();
  }

  async update() {
    this.drawHead();
    if (!this.chart) return this.band ? this.band.update() : this.page.show();
    if (await this.fetch()) this.refill();
    await this.brush?.update();
    if (this.page.state.pinned === null) await this.explain();
  }

  destroy() {
    this.wanted += 1;
    this.observer?.disconnect();
    this.chart?.destroy();
    this.hostChart?.destroy();
    this.band?.destroy();
  }
}
