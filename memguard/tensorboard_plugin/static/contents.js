// What filled the peak: an icicle from category to module to line to tensor, a table of the same rows, and memory over the depth of the model.

import { h, replace, sortable, svg } from "./dom.js";
import { formatBytes, formatCount, formatPlace, formatShare } from "./format.js";

// Category, its name, its colour.
const CATEGORIES = {
  parameters: ["Parameters", "parameters"],
  buffers: ["Buffers", "buffers"],
  optimizer: ["Optimizer states", "optimizer"],
  gradients: ["Gradients", "gradients"],
  kept: ["Kept from before the batch", "outputs"],
  inputs: ["Inputs", "batch"],
  activations: ["Saved activations", "activations"],
  temporaries: ["Temporaries and workspaces", "other"],
};
const MOMENTS = { forward: "forward", loss: "loss", backward: "backward", step: "optimizer's step" };
const LEVEL = 26;
const NARROWEST = 0.0015; // of the whole width: what is narrower is in the table
const FIRST = 12;

export function contentsPart(contents, row) {
  const rows = readRows(contents);
  return new Contents(contents, rows, row).element;
}

function readRows(contents) {
  const places = Array.isArray(contents.places) ? contents.places : [];
  return (Array.isArray(contents.rows) ? contents.rows : []).filter((each) => Array.isArray(each) && CATEGORIES[each[0]] && each[6] > 0).map(([category, group, place, what, shape, dtype, nbytes, count]) => {
    const [file, line, called] = Array.isArray(places[place]) ? places[place] : [];
    return { category, group: String(group ?? ""), file, line, called, what: String(what ?? ""), shape: Array.isArray(shape) ? `[${shape.join(", ")}]` : "", dtype: String(dtype ?? ""), nbytes, count: count ?? 1, place: file ? formatPlace(file, line) : "" };
  });
}

// The rows as a tree: {name, nbytes, rows, children, hue}; a module's path is a level for each of its parts.
function treeOf(rows) {
  const root = { name: "Allocated peak", nbytes: 0, rows: [], children: new Map(), hue: "other" };
  for (const row of rows) {
    const [name, hue] = CATEGORIES[row.category];
    const modules = ["parameters", "buffers", "activations"].includes(row.category) ? row.group.split(".") : [row.group];
    let node = root;
    node.nbytes += row.nbytes;
    node.rows.push(row);
    for (const part of [name, ...modules, row.place, `${row.what} ${row.shape}`].filter(Boolean)) {
      if (!node.children.has(part)) node.children.set(part, { name: part, nbytes: 0, rows: [], children: new Map(), hue, above: node });
      node = node.children.get(part);
      node.nbytes += row.nbytes;
      node.rows.push(row);
    }
  }
  return joined(root);
}

// A part of a path that has one part only is one cell with it.
function joined(node) {
  for (const child of node.children.values()) joined(child);
  if (node.above?.above && node.children.size === 1) {
    const [only] = node.children.values();
    const plain = only.rows.length > 1 || !only.rows[0].what;
    if (plain && /^[\w.]+$/.test(node.name) && /^[\w.]+$/.test(only.name)) Object.assign(node, { name: `${node.name}.${only.name}`, children: only.children });
    for (const child of node.children.values()) child.above = node;
  }
  return node;
}

class Contents {
  constructor(contents, rows, row) {
    this.root = this.top = treeOf(rows);
    this.cells = h("div", { className: "icicle", role: "group", "aria-label": "What filled the peak, from category to module to line to tensor. Arrow keys walk, Enter goes into a part, Escape back out.", onkeydown: (event) => this.walk(event) });
    this.readout = h("div", { className: "readout", id: "contents-readout" });
    this.table = h("div");
    const sum = this.root.nbytes;
    const where = contents.module && contents.when !== "step" ? [" of ", h("code", null, String(contents.module))] : [];
    const when = MOMENTS[contents.when] ? [`It was reached in the ${MOMENTS[contents.when]}`, ...where, ". "] : [];
    const other = contents.batch !== row.batch ? `Shown is batch ${formatCount(contents.batch)}, the nearest with recorded contents. Its peak was ${formatBytes(contents.allocated_peak_bytes)}. ` : "";
    this.element = h("section", { id: "contents", "aria-label": "What filled the peak", data: { batch: contents.batch, sum, peak: contents.allocated_peak_bytes } },
      h("h3", null, "What filled the peak"), h("p", { className: "muted" }, other, ...when, "Click a part to go into it."),
      this.readout, this.cells, this.table, depth(contents));
    this.draw();
  }

  draw() {
    const { top } = this;
    const path = [];
    for (let node = top; node; node = node.above) path.unshift(node);
    const cells = [];
    const place = (node, left, level) => {
      const width = node.nbytes / top.nbytes;
      if (width < NARROWEST) return;
      cells.push(this.cell(node, left, width, level));
      let at = left;
      for (const child of [...node.children.values()].sort((a, b) => b.nbytes - a.nbytes)) {
        place(child, at, level + 1);
        at += child.nbytes / top.nbytes;
      }
    };
    path.slice(0, -1).forEach((node, level) => cells.push(this.cell(node, 0, 1, level)));
    place(top, 0, path.length - 1);
    replace(this.cells, cells);
    this.cells.style.height = `${LEVEL * (1 + Math.max(...cells.map((cell) => Number(cell.dataset.level))))}px`;
    this.tell(top);
    this.drawTable();
  }

  cell(node, left, width, level) {
    const go = () => {
      this.top = node.children.size ? node : node.above ?? node;
      this.draw();
      this.cells.querySelector(`[data-level="${level}"]`)?.focus();
    };
    const tell = () => this.tell(node);
    return h("button", { className: "part", tabIndex: node === this.top ? 0 : -1, "aria-label": `${node.name}, ${formatBytes(node.nbytes)}`, data: { level, bytes: node.nbytes, name: node.name }, onclick: go, onmouseenter: tell, onfocus: tell,
      style: { left: `${100 * left}%`, width: `${100 * width}%`, top: `${level * LEVEL}px`, "--hue": `var(--${node.hue})` } }, h("span", null, node.name));
  }

  tell(node) {
    const one = node.rows.length === 1 ? node.rows[0] : null;
    const count = node.rows.reduce((all, row) => all + row.count, 0);
    replace(this.readout, h("strong", null, node.name), h("span", null, formatBytes(node.nbytes)), h("span", { className: "muted" }, formatShare(node.nbytes, this.root.nbytes)),
      one ? [one.shape, one.dtype, one.file ? h("code", { title: one.file }, `${one.place} ${one.called ?? ""}`) : null].filter(Boolean).map((text) => h("span", null, text)) : h("span", { className: "muted" }, `${formatCount(count)} tensors`));
  }

  walk(event) {
    const cells = [...this.cells.children];
    const at = cells.indexOf(document.activeElement);
    if (event.key === "Escape" && this.top.above) {
      this.top = this.top.above;
      this.draw();
      this.cells.firstElementChild.focus();
    }
    const level = Number(cells[at]?.dataset.level);
    const box = (cell) => cell.offsetLeft + cell.offsetWidth / 2;
    const inLevel = (wanted) => cells.filter((cell) => Number(cell.dataset.level) === wanted).sort((a, b) => Math.abs(box(a) - box(cells[at])) - Math.abs(box(b) - box(cells[at])))[0];
    const beside = (step) => cells.filter((cell) => Number(cell.dataset.level) === level).sort((a, b) => a.offsetLeft - b.offsetLeft).find((cell, number, all) => all[number - step] === cells[at]);
    const next = at < 0 ? null : { ArrowDown: () => inLevel(level + 1), ArrowUp: () => inLevel(level - 1), ArrowRight: () => beside(1), ArrowLeft: () => beside(-1) }[event.key]?.();
    if (next) next.focus();
    if (next || event.key === "Escape") event.preventDefault();
  }

  drawTable() {
    replace(this.table, sortable([
      { title: "What", read: (row) => CATEGORIES[row.category][0], show: (row) => [h("span", { className: "swatch", style: { background: `var(--${CATEGORIES[row.category][1]})` } }), " ", CATEGORIES[row.category][0]] },
      { title: "Module, group or holder", read: (row) => row.group, show: (row) => h("code", null, row.group) },
      { title: "Line", read: (row) => row.place, show: (row) => (row.file ? h("code", { title: row.file }, row.place) : "") },
      { title: "Tensor", read: (row) => row.what, show: (row) => [row.what, row.count > 1 ? h("span", { className: "muted" }, ` \u00d7 ${formatCount(row.count)}`) : null].filter(Boolean) },
      { title: "Shape", read: (row) => row.shape, show: (row) => row.shape },
      { title: "Type", read: (row) => row.dtype, show: (row) => row.dtype },
      { title: "Memory", read: (row) => row.nbytes, show: (row) => formatBytes(row.nbytes), numeric: true },
      { title: "Share", read: (row) => row.nbytes, show: (row) => formatShare(row.nbytes, this.root.nbytes), numeric: true },
    ], this.top.rows, { by: 6, first: FIRST, className: "contents" }));
  }
}

// What was allocated as the batch went through the model: up in the forward, down in the backward.
function depth(contents) {
  const moments = (Array.isArray(contents.moments) ? contents.moments : []).filter((each) => Array.isArray(each) && Number.isFinite(each[2]));
  if (moments.length < 3) return null;
  const [width, height] = [1000, 120];
  const top = Math.max(contents.allocated_peak_bytes, ...moments.map((each) => each[2])) || 1;
  const x = (at) => (width * at) / (moments.length - 1);
  const y = (nbytes) => height - ((height - 4) * nbytes) / top;
  const readout = h("div", { className: "readout" }, h("span", { className: "muted" }, `Point at the curve: ${formatCount(moments.length)} modules, in the order in which they ended`));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "depth", role: "img", "aria-label": `Allocated memory through the batch, at most ${formatBytes(top)}` });
  const points = moments.map((each, at) => `${x(at).toFixed(1)},${y(each[2]).toFixed(1)}`).join(" ");
  const turn = moments.findIndex((each) => each[0] === "backward");
  picture.append(svg("polygon", { points: `0,${height} ${points} ${width},${height}`, class: "area" }), svg("polyline", { points, class: "line", "vector-effect": "non-scaling-stroke" }));
  if (turn > 0) picture.append(svg("line", { x1: x(turn - 0.5), x2: x(turn - 0.5), y1: 0, y2: height, class: "turn", "vector-effect": "non-scaling-stroke" }));
  picture.addEventListener("mousemove", (event) => {
    const box = picture.getBoundingClientRect();
    const [kind, module, nbytes] = moments[Math.max(0, Math.min(moments.length - 1, Math.round(((event.clientX - box.left) / box.width) * (moments.length - 1))))];
    replace(readout, h("strong", null, formatBytes(nbytes)), h("span", null, `${MOMENTS[kind] ?? kind}${module ? " of " : ""}`, module ? h("code", null, String(module)) : null));
  });
  return h("div", { id: "depth" }, h("h3", null, "Memory through the model: forward, then backward"), readout, picture);
}
