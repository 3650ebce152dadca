// One run over its ranks: the band of their peaks, which is the worst and why, and the ranks that matter beside each other.

import { LEFT, memoryChart } from "./chart.js";
import { h, replace, table } from "./dom.js";
import { isMarked } from "./findings.js";
import { formatBytes, formatCount } from "./format.js";
import { heatMap } from "./heat.js";
import { lowerBound } from "./rows.js";
import { color } from "./theme.js";

const LISTED = 12;

export async function rankBand(page, panel, height, pick) {
  const readout = h("div", { className: "readout" });
  const plot = h("div", { className: "plot" });
  const why = h("div", { className: "why" });
  const map = h("div", { className: "heat" });
  const listed = h("div", { className: "listed" });
  const hint = h("span", { className: "muted" }, "Peaks of the ranks in the same optimizer steps; click to look at the highest");
  replace(panel, h("div", { className: "row" }, readout, h("span", { className: "grow" }), hint), plot, why, map, listed);
  let window = [null, null];
  let data = null;
  let chart = null;
  const columns = () => [data.batch, data.low, data.median, data.high];
  const fetchBand = () => page.source.ranks(page.state.run, page.state.start, window[0], window[1], Math.max(200, plot.clientWidth - LEFT));
  const read = (position) => {
    const at = position ?? data.high.reduce((best, value, each) => (value > data.high[best] ? each : best), 0);
    if (!data.batch.length) return;
    replace(readout, h("strong", null, `Batch ${formatCount(data.at[at])}`), h("span", { className: "muted" }, `highest is rank ${data.worst[at]} with `), h("strong", null, formatBytes(data.high[at])), h("span", { className: "muted" }, `median ${formatBytes(data.median[at])}, lowest ${formatBytes(data.low[at])}`));
    readout.dataset.worst = data.worst[at];
  };
  const explain = async () => {
    const worst = await page.source.worst(page.state.run, page.state.start);
    replace(why, worst ? sentences(worst) : null);
    replace(listed, rankTable(page, worst));
  };
  const update = async () => {
    data = await fetchBand();
    chart?.setData(columns());
    if (chart) read(null);
    await explain();
    await heatMap(page, map, pick);
  };
  const zoom = async (from, to) => {
    window = [from, to];
    data = await fetchBand();
    chart.setData(columns());
    read(null);
  };
  await update();
  chart = memoryChart(plot, {
    width: plot.clientWidth, height, labels: true, capacity: page.details.session.device_total_bytes ?? null,
    series: [{ label: "Lowest rank", color: color("start"), width: 1 }, { label: "Median rank", color: color("muted"), width: 1.25, dash: [5, 4] }, { label: "Highest rank", color: color("peak"), width: 1.75 }],
    bands: [{ series: [3, 1], fill: color("peak-fill") }],
    state: () => ({ findings: page.details.findings.filter(isMarked) }),
    onZoom: (from, to) => zoom(Math.floor(from), Math.ceil(to)),
    onReset: () => zoom(null, null),
    onPick: (batch) => {
      const at = Math.min(lowerBound(data.batch, batch), data.batch.length - 1);
      pick(data.worst[at], data.at[at]);
    },
    onCursor: (position, over) => read(over ? position : null),
  }, columns());
  read(null);
  return { update, destroy: () => chart.destroy() };
}

// The worst rank in a sentence, and why, each cause on a line of its own.
function sentences(worst) {
  const head = h("p", { id: "worst-rank", data: { rank: worst.rank } }, h("strong", null, `Rank ${worst.rank}`), ` has the highest peak: `, h("strong", null, formatBytes(worst.peak_bytes)), ` at ${worst.stage} batch ${formatCount(worst.batch)}, where the median of the others was ${formatBytes(worst.median_bytes)}.`);
  const groups = worst.verdicts?.length ? h("ul", { id: "verdicts" }, worst.verdicts.map((each) => h("li", { data: { where: each.where } }, `${each.text[0].toUpperCase()}${each.text.slice(1)}.`))) : null;
  return [groups, head, worst.why.length ? h("ul", null, worst.why.map((cause) => h("li", null, cause))) : null, worst.finding ? h("p", { className: "muted" }, `${worst.finding.code}: ${worst.finding.advice}`) : null];
}

// The ranks that matter: those out of memory, then by peak, the lowest last.
function rankTable(page, worst) {
  const peak = (rank) => rank.peak?.allocated_peak_bytes ?? rank.peak?.host_rss_bytes ?? -1;
  const ranks = [...(page.run?.ranks ?? [])].sort((a, b) => (b.ooms > 0) - (a.ooms > 0) || peak(b) - peak(a));
  const shown = ranks.length > LISTED ? [...ranks.slice(0, LISTED - 1), ranks[ranks.length - 1]] : ranks;
  const open = (rank) => h("button", { className: "link", onclick: () => page.go("timeline", { rank: rank.rank, pinned: null }) }, `rank ${rank.rank}${rank.rank === worst?.rank ? ", highest" : ""}`);
  const counts = (rank) => Object.entries(rank.findings ?? {}).filter(([, number]) => number).map(([level, number]) => h("span", { className: `badge ${level}`, title: level }, String(number)));
  const rows = shown.map((rank) => [
    open(rank), rank.node ?? "", rank.device ?? "", rank.pending ? "reading \u2026" : formatBytes(peak(rank) < 0 ? null : peak(rank)), formatCount(rank.count), [...counts(rank), rank.ooms ? h("span", { className: "badge oom" }, "OOM") : null],
    rank.pending ? "" : [rank.end ?? "no word", rank.peers?.length ? `, after rank ${rank.peers.join(", ")} fell` : ""],
  ]);
  const hidden = (page.run?.ranks.length ?? 0) + (page.run?.others ?? 0) - shown.length;
  return [
    table(["Rank", "Node", "Device", "Peak", "Batches", "Findings", "Ended"], rows, { className: "runs ranks", numeric: [3, 4] }),
    hidden > 0 ? h("p", { className: "muted" }, `${formatCount(hidden)} more ranks, none of them higher than those above the last line.`) : null,
  ];
}

// What a single rank's page says of the others: one line above its chart.
export async function rankNote(page) {
  if (!page.run || page.run.ranks.length < 2 || page.state.rank === "all") return null;
  const worst = await page.source.worst(page.state.run, page.state.start);
  if (!worst || worst.peak_bytes <= 1.05 * worst.median_bytes) return null;
  const here = worst.rank === page.state.rank;
  const all = h("button", { className: "link", onclick: () => page.go("timeline", { rank: "all", pinned: null }) }, "Compare all ranks");
  const other = h("button", { className: "link", onclick: () => page.go("timeline", { rank: worst.rank, pinned: null }) }, `rank ${worst.rank}`);
  return h("p", { id: "rank-note" }, here ? `This rank has the highest peak of all: ` : ["The highest peak of all ranks is that of ", other, ": "], h("strong", null, formatBytes(worst.peak_bytes)), `, the median is ${formatBytes(worst.median_bytes)}. `, worst.why.length ? `Why: ${worst.why.join("; ")}. ` : "", all);
}
