// Elements without innerHTML: what a recording says is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") {
      for (const [key, each] of Object.entries(value)) key.startsWith("--") ? element.style.setProperty(key, each) : (element.style[key] = each);
    }
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return parent;
}

export function table(headings, rows, options = {}) {
  const numeric = new Set(options.numeric ?? []);
  const cell = (tag, content, at) => h(tag, { className: numeric.has(at) ? "number" : "", scope: tag === "th" ? "col" : null }, content);
  return wide(h("table", { className: options.className ?? "" },
    h("thead", null, h("tr", null, headings.map((heading, at) => cell("th", heading, at)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((content, at) => cell("td", content ?? "", at)))))));
}

// What may be wider than the screen scrolls by itself, with the keyboard as well.
function wide(element) {
  const place = h("div", { className: "wide" }, element);
  new ResizeObserver(() => (place.scrollWidth > place.clientWidth ? place.setAttribute("tabindex", "0") : place.removeAttribute("tabindex"))).observe(place);
  return place;
}

// A table that sorts by the column whose heading is clicked. Columns: {title, read, show, numeric, down: the largest first}; options: by, up, first.
export function sortable(columns, rows, options = {}) {
  const place = h("div", { className: "sortable" });
  let { by = 0, up = false } = options;
  let most = options.first ?? rows.length;
  const compare = (a, b) => (typeof a === "string" || typeof b === "string" ? String(a ?? "").localeCompare(String(b ?? ""), undefined, { numeric: true }) : (a ?? -1) - (b ?? -1));
  const draw = () => {
    const sorted = [...rows].sort((a, b) => (up ? 1 : -1) * compare(columns[by].read(a), columns[by].read(b)));
    const heading = (column, at) => column.title && h("button", { className: "sort", onclick: () => {
      [by, up] = [at, at === by ? !up : !(column.numeric || column.down)];
      draw();
      place.querySelectorAll("th")[at].querySelector("button").focus();
    } }, column.title, at === by ? (up ? " \u25b2" : " \u25bc") : "");
    const made = table(columns.map(heading), sorted.slice(0, most).map((row) => columns.map((column) => column.show(row))), { numeric: columns.flatMap((column, at) => (column.numeric ? [at] : [])), className: options.className });
    made.querySelectorAll("th").forEach((cell, at) => at === by && cell.setAttribute("aria-sort", up ? "ascending" : "descending"));
    options.each?.(made, sorted.slice(0, most));
    replace(place, made, sorted.length > most ? h("button", { onclick: () => {
      most = rows.length;
      draw();
    } }, `Show all ${sorted.length} rows`) : null);
  };
  draw();
  return place;
}

// A device-pixel-sharp canvas of a CSS size.
export function sharpCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
