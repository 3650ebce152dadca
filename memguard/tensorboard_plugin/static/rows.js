// Rows of a recording as columns of float64; NaN is unknown. The server and the report file send the same bytes.

export function decodeRows(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = {};
  let offset = 4 + length;
  for (const name of head.columns) {
    columns[name] = new Float64Array(buffer, offset, head.rows);
    offset += 8 * head.rows;
  }
  return { ...head, columns };
}

// Values as uPlot takes them: a gap is null, for NaN would spoil its scales.
export function drawable(values) {
  return values.some(Number.isNaN) ? Array.from(values, (value) => (Number.isNaN(value) ? null : value)) : values;
}

export function rowAt(series, position) {
  const row = {};
  for (const [name, values] of Object.entries(series.columns)) {
    const value = values[position];
    row[name] = Number.isNaN(value) ? null : value;
  }
  row.stage = series.stages[row.stage] ?? "other";
  return row;
}

// The position of the first row at or after a batch.
export function lowerBound(batches, batch) {
  let low = 0;
  let high = batches.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (batches[middle] < batch) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The row nearest to a batch; among rows closer than `reach` the one with the highest peak.
export function nearestRow(series, batch, reach) {
  const batches = series.columns.batch;
  if (!batches.length) return -1;
  const peaks = series.columns.allocated_peak_bytes;
  let best = -1;
  const end = lowerBound(batches, batch + reach + 1e-9);
  for (let at = lowerBound(batches, batch - reach); at < end; at += 1) {
    if (best < 0 || peaks[at] > peaks[best]) best = at;
  }
  if (best >= 0) return best;
  const at = Math.min(lowerBound(batches, batch), batches.length - 1);
  return at > 0 && batch - batches[at - 1] < batches[at] - batch ? at - 1 : at;
}

// Of each of `buckets` stretches: highest peak, lowest floor, most reserved, most host RAM. As html_rows.notable.
export function decimate(columns, start, end, buckets) {
  if (end - start <= 2 * buckets) return Array.from({ length: end - start }, (_, at) => start + at);
  const keep = new Set([start, end - 1]);
  const rules = [["allocated_peak_bytes", 1], ["allocated_start_bytes", -1], ["reserved_peak_bytes", 1], ["host_rss_bytes", 1]];
  for (let bucket = 0; bucket < buckets; bucket += 1) {
    const from = start + Math.floor(((end - start) * bucket) / buckets);
    const to = start + Math.floor(((end - start) * (bucket + 1)) / buckets);
    for (const [name, sign] of rules) {
      const values = columns[name];
      let best = from;
      for (let at = from; at < to; at += 1) {
        if (sign * values[at] > sign * values[best] || Number.isNaN(values[best])) best = at;
      }
      keep.add(best);
    }
  }
  return [...keep].sort((a, b) => a - b);
}

// The device is asked once a second: an answer below what this process had reserved in the batch is of before, and left out.
export function withoutStale(series) {
  const { device_used_bytes: used, reserved_peak_bytes: reserved } = series.columns;
  return { ...series, columns: { ...series.columns, device_used_bytes: used.map((value, at) => (value < reserved[at] ? NaN : value)) } };
}
