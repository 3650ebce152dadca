// Elements without innerHTML: what a recording says is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
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
  return h("table", { className: options.className ?? "" },
    h("thead", null, h("tr", null, headings.map((heading, at) => cell("th", heading, at)))),
    h("tbody", null, rows.map((row) => h("tr", null, row.map((content, at) => cell("td", content ?? "", at))))));
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
