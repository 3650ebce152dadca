// One run over its ranks: from the lowest to the highest rank's peak, and which rank it was.

import { LEFT, memoryChart } from "./chart.js";
import { h, replace } from "./dom.js";
import { isMarked } from "./findings.js";
import { formatBytes, formatCount } from "./format.js";
import { lowerBound } from "./rows.js";
import { color } from "./theme.js";

export async function rankBand(page, panel, height, pick) {
  const readout = h("div", { className: "readout" });
  const plot = h("div", { className: "plot" });
  replace(panel, h("div", { className: "row" }, readout, h("span", { className: "grow" }), h("span", { className: "muted" }, "Peak of the highest and the lowest rank; click to look at the worst")), plot);
  let window = [null, null];
  let data = null;
  let chart = null;
  const columns = () => [data.batch, data.low, data.high];
  const fetchBand = () => page.source.ranks(page.state.run, page.state.start, window[0], window[1], Math.max(200, plot.clientWidth - LEFT));
  const read = (position) => {
    const at = position ?? data.high.indexOf(Math.max(...data.high));
    if (at < 0 || !data.batch.length) return;
    replace(readout, h("strong", null, `Batch ${formatCount(data.batch[at])}`), h("span", { className: "muted" }, `worst is rank ${data.worst[at]} with `), h("strong", null, formatBytes(data.high[at])), h("span", { className: "muted" }, `lowest ${formatBytes(data.low[at])}`));
    readout.dataset.worst = data.worst[at];
  };
  const update = async () => {
    data = await fetchBand();
    chart?.setData(columns());
    if (chart) read(null);
  };
  const zoom = async (from, to) => {
    window = [from, to];
    await update();
  };
  await update();
  chart = memoryChart(plot, {
    width: plot.clientWidth, height, labels: true, capacity: page.details.session.device_total_bytes ?? null,
    series: [{ label: "Lowest rank", color: color("start"), width: 1 }, { label: "Highest rank", color: color("peak"), width: 1.75 }],
    bands: [{ series: [2, 1], fill: color("peak-fill") }],
    state: () => ({ findings: page.details.findings.filter(isMarked) }),
    onZoom: (from, to) => zoom(Math.floor(from), Math.ceil(to)),
    onReset: () => zoom(null, null),
    onPick: (batch) => {
      const at = Math.min(lowerBound(data.batch, batch), data.batch.length - 1);
      pick(data.worst[at], data.batch[at]);
    },
    onCursor: (position, over) => read(over ? position : null),
  }, columns());
  read(null);
  return { update, destroy: () => chart.destroy() };
}
