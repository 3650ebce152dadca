// A memory snapshot as a map: every segment in the order of its address, every block in it, wrapped like text.

import { h, replace, sharpCanvas, table } from "./dom.js";
import { formatBytes, formatCount, formatPlace, formatShare } from "./format.js";
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
      const map = await read();
      snapshotMap(place, map, name);
    } catch (error) {
      replace(place);
      tell(error.message);
    }
  };
  const take = (file) => file && open(() => page.source.readSnapshot(file), file.name);
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
  const buttons = known.map((each) => h("button", { onclick: () => open(async () => each.map ?? page.source.snapshot(page.at, each.id), String(each.id)) }, `Out of memory in batch ${formatCount(each.batch)}`));
  replace(container, page.source.live ? zone : null, buttons.length ? h("div", { className: "row" }, h("span", { className: "muted" }, "Of this run:"), buttons) : null, problem, place);
  if (known.length) await open(async () => known[known.length - 1].map ?? page.source.snapshot(page.at, known[known.length - 1].id), String(known[known.length - 1].id));
  return {};
}

export function snapshotMap(container, map, name) {
  const { totals, segments } = map;
  const inside = totals.free_bytes;
  const picture = new BlockMap(map);
  const fact = (label, value, note, id) => h("div", { className: "tile" }, h("div", { className: "muted" }, label), h("div", { className: "value", id }, value), h("div", { className: "muted small" }, note));
  const colours = h("select", { "aria-label": "Colour blocks by", onchange: () => picture.colourBy(colours.value) }, h("option", { value: "line" }, "by line"), h("option", { value: "state" }, "by state"));
  const detail = h("input", { type: "range", min: 0, max: 5, step: 1, value: 0, "aria-label": "Detail", oninput: () => picture.magnify(2 ** Number(detail.value)) });
  const lines = [...map.lines].sort((a, b) => b[3] - a[3]).slice(0, 12);
  replace(container,
    name ? h("h2", null, name) : null,
    h("div", { className: "tiles" },
      fact("Reserved", formatBytes(totals.reserved_bytes), `${formatCount(segments.length)} segments`, "map-reserved"),
      fact("In use", formatBytes(totals.allocated_bytes), formatShare(totals.allocated_bytes, totals.reserved_bytes), "map-allocated"),
      fact("Free inside segments", formatBytes(inside), `${formatShare(inside, totals.reserved_bytes)} of reserved: fragmentation`, "map-free"),
      fact("Largest free block", formatBytes(totals.largest_free_bytes), "anything larger needs new memory from the device", "map-largest")),
    h("section", { className: "panel" }, h("div", { className: "row" }, picture.readout, h("span", { className: "grow" }), h("label", null, h("span", { className: "muted" }, "Colour"), colours), h("label", null, h("span", { className: "muted" }, "Detail"), detail)), picture.element),
    lines.length ? h("section", { className: "panel" }, h("h2", null, "Lines that hold the most"), table(["", "Line", "Function", "Memory", "Blocks"], lines.map(([file, line, called, nbytes, blocks]) => [
      h("span", { className: "swatch", style: { background: picture.hue(file, line, called) } }), file ? h("code", { title: file }, formatPlace(file, line)) : "", file ? h("code", null, `${called}()`) : String(called ?? ""), formatBytes(nbytes), formatCount(blocks)]), { numeric: [3, 4] })) : null);
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
