// The page in one file: the recording stands in the document itself; no server, no network.

import { start } from "./app.js";
import { decimate, lowerBound } from "./rows.js";

const WHOLE = Number.NEGATIVE_INFINITY;

// The inverse of html.py's _pack: base64, inflate, sum up the differences of each column.
async function unpack(packed) {
  const text = atob(packed.data);
  const bytes = Uint8Array.from(text, (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const { rows } = packed;
  const columns = {};
  packed.columns.forEach((name, number) => {
    const base = number * rows * 8;
    const values = new Float64Array(rows);
    let sum = 0;
    for (let at = 0; at < rows; at += 1) {
      let low = 0;
      let high = 0;
      for (let plane = 3; plane >= 0; plane -= 1) {
        low = low * 256 + planes[base + plane * rows + at];
        high = high * 256 + planes[base + (plane + 4) * rows + at];
      }
      if (high >= 2 ** 31) high -= 2 ** 32;
      sum += high * 2 ** 32 + low;
      values[at] = sum < 0 ? NaN : name === "seconds" ? sum / 1000 : sum;
    }
    columns[name] = values;
  });
  return columns;
}

function bandsOf({ batch, stage }, start, end, train) {
  const bands = [];
  for (let at = start; at < end; at += 1) {
    if (stage[at] === train) continue;
    const last = bands[bands.length - 1];
    if (last && last.at === at - 1 && last.band[2] === stage[at]) [last.band[1], last.at] = [batch[at], at];
    else bands.push({ band: [batch[at], batch[at], stage[at]], at });
  }
  return bands.map((each) => each.band);
}

function embedded(data) {
  const unpacked = new Map();
  const columnsOf = async (rank) => {
    if (!unpacked.has(rank)) unpacked.set(rank, await unpack(data.told[rank]));
    return unpacked.get(rank);
  };
  return {
    live: false,
    runs: async () => ({ runs: [data.run], pending: 0, time: null }),
    details: async ({ rank }, version) => (version ? { same: true } : { version: "1", ...data.told[rank].details }),
    async series({ rank }, x0, x1, px) {
      const told = data.told[rank];
      const columns = await columnsOf(rank);
      const start = lowerBound(columns.batch, x0 ?? WHOLE);
      const end = x1 === null ? columns.batch.length : lowerBound(columns.batch, x1 + 0.5);
      const keep = decimate(columns, start, end, px);
      const some = {};
      for (const [name, values] of Object.entries(columns)) some[name] = Float64Array.from(keep, (at) => values[at]);
      const marked = (name) => Array.from(columns.batch.subarray(start, end)).filter((_, at) => columns[name][start + at] > 0);
      return {
        columns: some, rows: keep.length, total: told.rows === told.total ? end - start : Math.max(end - start + 1, Math.round(((end - start) * told.total) / told.rows)), stages: told.stages,
        bands: bandsOf(columns, start, end, told.stages.indexOf("train")), marks: { num_alloc_retries: marked("num_alloc_retries"), num_ooms: marked("num_ooms"), num_device_free: marked("num_device_free") },
      };
    },
    async ranks(_run, _start, x0, x1) {
      const inside = data.band.batch.map((batch) => (x0 === null || batch >= x0) && (x1 === null || batch <= x1));
      return Object.fromEntries(Object.entries(data.band).map(([name, values]) => [name, values.filter((_, at) => inside[at])]));
    },
    worst: async () => data.worst,
    heat: async () => data.heat,
    async owners({ rank }, batch) {
      const nearest = (lines) => lines.reduce((best, each) => (!best || Math.abs(each.batch - batch) < Math.abs(best.batch - batch) ? each : best), null);
      return { owners: nearest(data.told[rank].owners), contents: nearest(data.told[rank].contents) };
    },
  };
}

start(embedded(JSON.parse(document.getElementById("recording").textContent)), document.body);
