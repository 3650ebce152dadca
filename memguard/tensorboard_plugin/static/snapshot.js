// A memory snapshot as a map: every segment in the order of its address, every block in it, wrapped like text.

import { memoryChart } from "./chart.js";
import { h, replace, sharpCanvas, table } from "./dom.js";
import { formatBytes, formatCount, formatPlace, formatShare } from "./format.js";
import { inline } from "./markdown.js";
import { list } from "./peak.js";
import { color } from "./theme.js";

const ROW = 22;
const GAP = 4;
const STATES = ["in use", "waiting for another stream", "free"];

export async function snapshot(page, container) {
  const place = h("div");
  const problem = h("p", { className: "problem", role: "alert", hidden: true });
  const tell = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  const open = async (read, name) => {
    tell("");
    replace(place, h("p", { className: "muted" }, `Reading ${name} \u2026`));
    try {
      snapshotView(place, await read(), name, page.source.live ? read : null);
    } catch (error) {
      replace(place);
      tell(error.message);
    }
  };
  const take = (file) => file && open((event) => page.source.readSnapshot(file, event), file.name);
  const input = h("input", { type: "file", id: "snapshot-file", "aria-label": "Open a snapshot file", onchange: () => take(input.files[0]) });
  const zone = h("section", { className: "drop", ondragover: (event) => {
    event.preventDefault();
    zone.classList.add("over");
  }, ondragleave: () => zone.classList.remove("over"), ondrop: (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    take(event.dataTransfer.files[0]);
  } }, h("p", null, h("strong", null, "Drop a memory snapshot here"), " or choose one: ", input), h("p", { className: "muted small" }, "A pickle of torch.cuda.memory._dump_snapshot. It is read as plain data by this TensorBoard, never unpickled, and not kept."));
  const known = (page.details?.ooms ?? []).filter((each) => each.map || (each.snapshot && page.source.live));
  const buttons = known.map((each) => h("button", { onclick: () => open(reader(page, each), String(each.id)) }, `Out of memory in batch ${formatCount(each.batch)}`));
  replace(container, page.source.live ? zone : null, buttons.length ? h("div", { className: "row" }, h("span", { className: "muted" }, "Of this run:"), buttons) : null, problem, place);
  if (known.length) await open(reader(page, known[known.length - 1]), String(known[known.length - 1].id));
  return {};
}

// Reads the snapshot of a post-mortem, as it was after an event or at its end.
export function reader(page, oom) {
  return async (event) => (event === undefined && oom.map) || page.source.snapshot(page.at, oom.id, event);
}

// The history, if there is one, above the map; a click on a moment shows the map as it was then.
export function snapshotView(container, map, name, read) {
  const place = h("div");
  const tell = h("p", { className: "muted", id: "moment", role: "status" });
  const show = async (event, nbytes) => {
    tell.textContent = "Reading the moment \u2026";
    try {
      const then = event === null ? map : await read(event);
      tell.textContent = event === null ? "" : `The map after event ${formatCount(event)}, with ${formatBytes(nbytes)} allocated.`;
      if (event !== null) tell.append(" ", h("button", { onclick: () => show(null) }, "Back to the end"));
      snapshotMap(place, then, null);
    } catch (error) {
      tell.textContent = error.message;
    }
  };
  replace(container, name ? h("h2", null, name) : null,
    map.advice?.length ? h("section", { className: "panel" }, h("h2", null, "What to change"), h("ul", { className: "advice-list" }, map.advice.map((text) => h("li", null, inline(text))))) : null,
    map.history ? historyPanel(map.history, read ? show : null) : null, stepsPanel(map), tell, place);
  snapshotMap(place, map, null);
}

// What stays with each step of the history, and what a replay reserves under other settings.
function stepsPanel({ steps, replays }) {
  if (!steps && !replays?.length) return null;
  const grown = steps?.growth.length ? table(["Line", "Function", "More with each step", "In all"], steps.growth.map(([file, line, called, each, all]) => [file ? h("code", { title: file }, formatPlace(file, line)) : "", file ? h("code", null, `${called}()`) : String(called ?? ""), formatBytes(each), formatBytes(all)]), { numeric: [2, 3] }) : null;
  return h("section", { className: "panel columns", id: "steps" },
    steps ? h("div", null, h("h2", null, "Growth from step to step"), h("p", null, `${formatCount(steps.count)} steps repeat; a typical one leaves `, h("strong", null, formatBytes(Math.abs(steps.bytes_per_step))), ` ${steps.bytes_per_step < 0 ? "less" : "more"} allocated.`), grown) : null,
    replays?.length ? h("div", null, h("h2", null, "The history replayed"), list("Reserved peak", replays, ([name, nbytes]) => [h("code", null, name), nbytes])) : null);
}

// Allocated memory over the history, stacked by line or by what allocated it.
function historyPanel(history, show) {
  const plot = h("div", { className: "plot" });
  const key = h("div", { className: "legend" });
  const readout = h("div", { className: "readout" });
  const by = h("select", { id: "history-by", "aria-label": "Stack by", onchange: () => draw() }, h("option", { value: "lines" }, "by line"), h("option", { value: "kinds" }, "by kind"));
  const peak = history.events.indexOf(history.peak_event);
  const text = (name) => (Array.isArray(name) ? (name[0] ? `${formatPlace(name[0], name[1])} ${name[2] ?? ""}` : String(name[2])) : String(name));
  let chart = null;
  const draw = () => {
    const shares = history[by.value];
    const sums = history.events.map(() => 0);
    const stacked = shares.map((each) => each.bytes.map((nbytes, at) => (sums[at] += Math.max(0, nbytes))));
    const hue = (at) => (at < shares.length - 1 || shares.length < 3 ? color(`run-${at % 8}`) : color("other"));
    const tellAt = (at) => replace(readout, h("strong", null, formatBytes(history.totals[at])), h("span", { className: "muted" }, `after event ${formatCount(history.events[at])}${history.times_us ? `, ${(history.times_us[at] / 1e6).toFixed(3)} s` : ""}${at === peak ? ", the peak" : ""}`));
    chart?.destroy();
    chart = memoryChart(plot, {
      width: plot.clientWidth, height: 240, capacity: null,
      series: stacked.map((_, at) => ({ label: text(shares[shares.length - 1 - at].name), color: hue(shares.length - 1 - at), fill: hue(shares.length - 1 - at), width: 0.5 })),
      state: () => ({ pinned: history.peak_event }),
      onCursor: (at, over) => tellAt(over && at !== null ? at : peak),
      onPick: show ? (event) => {
        const at = history.events.reduce((best, each, number) => (Math.abs(each - event) < Math.abs(history.events[best] - event) ? number : best), 0);
        return show(history.events[at], history.totals[at]);
      } : null,
    }, [history.events, ...stacked.reverse()]);
    tellAt(peak);
    replace(key, shares.map((each, at) => h("span", { className: "key" }, h("span", { className: "swatch", style: { background: hue(at) } }), text(each.name), h("span", { className: "number muted" }, formatBytes(each.bytes[peak])))));
  };
  const panel = h("section", { className: "panel", id: "history", "aria-label": "History", data: { peak: history.totals[peak], event: history.peak_event } },
    h("div", { className: "row" }, h("h2", null, "Allocated over the history"), readout, h("span", { className: "grow" }), show ? h("button", { onclick: () => show(history.peak_event, history.totals[peak]) }, "Map at the peak") : null, h("label", null, h("span", { className: "muted" }, "Stack"), by)),
    plot, key, show ? h("p", { className: "muted small" }, "Click a moment to see the map as it was then. The sizes in the list are those at the peak.") : null);
  requestAnimationFrame(draw);
  return panel;
}

// Of the blocks in use: [bytes, segment, number of the line].
function largestBlocks(segments) {
  const found = [];
  for (const segment of segments) {
    for (let at = 0; at < segment.blocks.length; at += 4) if (segment.blocks[at + 1] !== 2) found.push([segment.blocks[at], segment, segment.blocks[at + 2]]);
  }
  return found.sort((a, b) => b[0] - a[0]).slice(0, 8);
}

export function snapshotMap(container, map, name) {
  const { totals, segments } = map;
  const inside = totals.free_bytes - (totals.idle_bytes ?? 0);
  const picture = new BlockMap(map);
  const fact = (label, value, note, id) => h("div", { className: "tile" }, h("div", { className: "muted" }, label), h("div", { className: "value", id }, value), h("div", { className: "muted small" }, note));
  const colours = h("select", { "aria-label": "Colour blocks by", onchange: () => picture.colourBy(colours.value) }, h("option", { value: "line" }, "by line"), h("option", { value: "state" }, "by state"));
  const detail = h("input", { type: "range", min: 0, max: 5, step: 1, value: 0, "aria-label": "Detail", oninput: () => picture.magnify(2 ** Number(detail.value)) });
  const lines = [...map.lines].sort((a, b) => b[3] - a[3]).slice(0, 12);
  const largest = largestBlocks(segments);
  replace(container,
    name ? h("h2", null, name) : null,
    h("div", { className: "tiles" },
      fact("Reserved", formatBytes(totals.reserved_bytes), `${formatCount(segments.length)} segments`, "map-reserved"),
      fact("In use", formatBytes(totals.allocated_bytes), formatShare(totals.allocated_bytes, totals.reserved_bytes), "map-allocated"),
      fact("Free in used segments", formatBytes(inside), `${formatShare(inside, totals.reserved_bytes)} of reserved: fragmentation`, "map-free"),
      totals.idle_bytes ? fact("Unused segments", formatBytes(totals.idle_bytes), "idle cache: reused, or given back when memory runs short", "map-idle") : null,
      fact("Largest free block", formatBytes(totals.largest_free_bytes), "anything larger needs new memory from the device", "map-largest")),
    h("section", { className: "panel" }, h("div", { className: "row" }, picture.readout, h("span", { className: "grow" }), h("label", null, h("span", { className: "muted" }, "Colour"), colours), h("label", null, h("span", { className: "muted" }, "Detail"), detail)), picture.element),
    lines.length ? h("section", { className: "panel" }, h("h2", null, "Lines that hold the most"), table(["", "Line", "Function", "Memory", "Blocks"], lines.map(([file, line, called, nbytes, blocks]) => [
      h("span", { className: "swatch", style: { background: picture.hue(file, line, called) } }), file ? h("code", { title: file }, formatPlace(file, line)) : "", file ? h("code", null, `${called}()`) : String(called ?? ""), formatBytes(nbytes), formatCount(blocks)]), { numeric: [3, 4] })) : null,
    largest.length ? h("section", { className: "panel" }, h("h2", null, "Largest blocks in use"), table(["Size", "Line", "Function", "Stream", "Segment"], largest.map(([nbytes, segment, line]) => {
      const [file, number, called] = map.lines[line] ?? [null, 0, ""];
      return [formatBytes(nbytes), file ? h("code", { title: file }, formatPlace(file, number)) : "", file ? h("code", null, `${called}()`) : String(called ?? ""), String(segment.stream), h("code", null, segment.address)];
    }))) : null);
  picture.observe();
}

class BlockMap {
  constructor(map) {
    this.map = map;
    this.by = "line";
    this.detail = 1;
    this.canvas = h("canvas", { tabIndex: 0, role: "img", "aria-label": "Map of segments and blocks. Arrow keys walk through the blocks." });
    this.element = h("div", { className: "map" }, this.canvas);
    this.readout = h("div", { className: "readout" }, h("span", { className: "muted" }, "Point at a block"));
    const largest = [...map.lines.entries()].sort((a, b) => b[1][3] - a[1][3]).slice(0, 8);
    this.hues = new Map(largest.map(([number], rank) => [number, `run-${rank}`]));
    this.canvas.onpointermove = (event) => this.point(event);
    this.canvas.onkeydown = (event) => this.walk(event);
    this.at = -1;
  }

  hue(file, line, called) {
    const number = this.map.lines.findIndex((each) => each[0] === file && each[1] === line && each[2] === called);
    return color(this.hues.get(number) ?? "other-line");
  }

  observe() {
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  colourBy(by) {
    this.by = by;
    this.draw();
  }

  magnify(factor) {
    this.detail = factor;
    this.draw();
  }

  // Where each block lies: [from, to] along one long line, small gaps between segments.
  layout(width) {
    const total = this.map.totals.reserved_bytes || 1;
    const rows = Math.max(6, Math.min(26, Math.ceil(this.map.segments.length / 4))) * this.detail;
    const gap = Math.min(GAP, (0.2 * rows * width) / Math.max(1, this.map.segments.length));
    this.scale = (rows * width - gap * this.map.segments.length) / total;
    this.places = [];
    let along = 0;
    for (const segment of this.map.segments) {
      let at = along;
      for (let block = 0; block < segment.blocks.length; block += 4) {
        const size = segment.blocks[block] * this.scale;
        this.places.push([at, at + size, segment, block]);
        at += size;
      }
      along += segment.size * this.scale + gap;
    }
    return Math.ceil(along / width);
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width || window.innerHeight === 0) return;
    const rows = this.layout(width);
    const context = sharpCanvas(this.canvas, width, rows * (ROW + 3));
    this.width = width;
    const colours = { free: color("free"), waiting: color("warning"), used: color("peak"), other: color("other-line") };
    const hues = new Map([...this.hues].map(([number, name]) => [number, color(name)]));
    for (const [from, to, segment, block] of this.places) {
      const [state, line] = [segment.blocks[block + 1], segment.blocks[block + 2]];
      context.fillStyle = state === 2 ? colours.free : state === 1 ? colours.waiting : this.by === "state" ? colours.used : hues.get(line) ?? colours.other;
      this.paint(context, from, to, width);
    }
    if (this.at >= 0) {
      context.fillStyle = color("text");
      this.paint(context, this.places[this.at][0], this.places[this.at][1], width);
    }
  }

  paint(context, from, to, width) {
    for (let row = Math.floor(from / width); row * width < to; row += 1) {
      const left = Math.max(0, from - row * width);
      const right = Math.min(width, to - row * width);
      if (right <= left) continue;
      const line = right - left > 3 ? 0.6 : 0;
      context.fillRect(left, row * (ROW + 3), Math.max(0.4, right - left - line), ROW);
    }
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / (ROW + 3));
    const along = row * this.width + (event.clientX - box.left);
    let low = 0;
    let high = this.places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.places[middle][1] <= along) low = middle + 1;
      else high = middle;
    }
    if (low < this.places.length && this.places[low][0] <= along) this.tell(low);
  }

  walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10 }[event.key];
    if (!step || !this.places?.length) return;
    event.preventDefault();
    this.tell(Math.min(this.places.length - 1, Math.max(0, this.at + step)));
  }

  tell(at) {
    if (at === this.at) return;
    this.at = at;
    const [, , segment, block] = this.places[at];
    const [size, state, line, requested] = segment.blocks.slice(block, block + 4);
    const [file, number, called] = this.map.lines[line] ?? [null, 0, ""];
    const kind = [segment.small ? "small pool" : "large pool", segment.expandable ? "expandable" : null, `stream ${segment.stream}`, `segment of ${formatBytes(segment.size)} at ${segment.address}`];
    replace(this.readout, h("strong", null, formatBytes(size)), h("span", null, STATES[state]), state !== 2 && requested !== size ? h("span", { className: "muted" }, `${formatBytes(requested)} asked for`) : null,
      file ? h("code", { title: file }, `${formatPlace(file, number)} ${called}()`) : state === 2 ? null : h("span", { className: "muted" }, String(called ?? "")), h("span", { className: "muted" }, kind.filter(Boolean).join(" \u00b7 ")));
    this.readout.dataset.size = size;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw());
  }
}
