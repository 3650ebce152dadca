// The little markdown that reports are written in, as elements: headings, lists, tables, code, bold. Never HTML.

import { h } from "./dom.js";

export function markdown(text) {
  const made = [];
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const heading = /^(#{1,4}) (.*)/.exec(line);
    if (line.startsWith("```")) {
      const code = [];
      for (at += 1; at < lines.length && !lines[at].startsWith("```"); at += 1) code.push(lines[at]);
      made.push(h("pre", { className: "wrap" }, code.join("\n")));
    } else if (heading) {
      made.push(h(`h${Math.min(4, heading[1].length + 1)}`, null, inline(heading[2])));
    } else if (/^\s*([-*]|\d+\.) /.test(line)) {
      const items = [];
      const ordered = /^\s*\d/.test(line);
      for (; at < lines.length && /^\s*([-*]|\d+\.) /.test(lines[at]); at += 1) items.push(h("li", null, inline(lines[at].replace(/^\s*([-*]|\d+\.) /, ""))));
      at -= 1;
      made.push(h(ordered ? "ol" : "ul", null, items));
    } else if (line.startsWith("|")) {
      const rows = [];
      for (; at < lines.length && lines[at].startsWith("|"); at += 1) rows.push(lines[at].replace(/^\||\|\s*$/g, "").split("|").map((cell) => cell.trim()));
      at -= 1;
      const body = rows.filter((row) => !row.every((cell) => /^:?-+:?$/.test(cell)));
      made.push(h("table", null, h("tbody", null, body.map((row, number) => h("tr", null, row.map((cell) => h(number ? "td" : "th", null, inline(cell))))))));
    } else if (line.trim()) {
      made.push(h("p", null, inline(line)));
    }
  }
  return h("div", { className: "markdown" }, made);
}

// Code and bold in a line of text.
export function inline(text) {
  return String(text).split(/(`[^`]*`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.length > 2 && part.startsWith("`")) return h("code", null, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**")) return h("strong", null, part.slice(2, -2));
    return part;
  });
}
