// Out of memory: the post-mortem as a page.

import { h, replace, table } from "./dom.js";
import { formatBytes, formatCount, formatPlace } from "./format.js";
import { inline, markdown } from "./markdown.js";
import { list, ownersBar } from "./peak.js";
import { reader, snapshotView } from "./snapshot.js";

export function oom(page, container) {
  function draw() {
    const reports = page.details.ooms;
    if (!reports.length) {
      replace(container, h("section", { className: "empty" }, h("h1", null, "This run has not run out of memory"), h("p", null, "If it does, this page says what asked for memory, what held it, and what to change.")));
      return;
    }
    const chosen = reports.find((each) => each.id === page.state.oom) ?? reports[reports.length - 1];
    const choice = reports.length > 1 ? h("div", { className: "row" }, reports.map((each) => h("button", { "aria-pressed": String(each === chosen), onclick: () => page.go("oom", { oom: each.id }) }, `Batch ${formatCount(each.batch)}`))) : null;
    replace(container, choice, report(page, chosen));
  }
  draw();
  return { update() {} };
}

function sentence(text) {
  const words = String(text ?? "");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

// How much was asked for, by which line, in which part of the step.
function asked(oom) {
  const site = oom.site && typeof oom.site === "object" && oom.site.file ? formatPlace(oom.site.file, oom.site.line) : "";
  if (!oom.requested_bytes && !site) return null;
  return h("p", { className: "muted" }, oom.requested_bytes ? `${formatBytes(oom.requested_bytes)} asked for` : "Asked for", site ? [" by ", h("code", { title: String(oom.site.file) }, site)] : null, oom.phase ? ` in the ${oom.phase}` : null, ".");
}

// Equal tensors in one row with their number; recordings of earlier versions have each by itself.
function grouped(tensors) {
  const rows = new Map();
  for (const each of tensors) {
    const key = JSON.stringify([each.name, each.owner, each.shape, each.dtype, each.bytes]);
    rows.set(key, { ...each, count: (rows.get(key)?.count ?? 0) + (each.count ?? 1) });
  }
  return [...rows.values()].sort((a, b) => b.count * b.bytes - a.count * a.bytes);
}

// Capacity, and what had it: allocated, cached but of no use to the request, outside of PyTorch; and what was asked for.
function capacityBar(page, oom) {
  const { total_bytes: total, allocated_bytes: allocated, reserved_bytes: reserved, free_bytes: free, requested_bytes: wanted } = { total_bytes: page.details.session.device_total_bytes, ...oom.request, ...(oom.requested_bytes ? { requested_bytes: oom.requested_bytes } : {}) };
  if (![total, allocated, reserved, wanted].every(Number.isFinite)) return null;
  const outside = Math.max(0, total - reserved - (free ?? 0));
  const parts = [["Allocated", allocated, "activations"], ["Cached, of no use to the request", Math.max(0, reserved - allocated), "buffers"], ["Outside of PyTorch's allocator", outside, "other"], ["Free on the device", free ?? 0, "free"], ["Asked for", wanted, "critical"]].filter(([, nbytes]) => nbytes > 0);
  const whole = Math.max(total, parts.reduce((all, [, nbytes]) => all + nbytes, 0));
  return h("section", { className: "panel", id: "capacity" }, h("h2", null, `Against the capacity of ${formatBytes(total)}`),
    h("div", { className: "stack", role: "img", "aria-label": parts.map(([text, nbytes]) => `${text} ${formatBytes(nbytes)}`).join(", ") }, parts.map(([text, nbytes, hue]) => h("div", { className: "owner", title: `${text}: ${formatBytes(nbytes)}`, style: { width: `${(100 * nbytes) / whole}%`, background: `var(--${hue})` } }))),
    h("div", { className: "legend" }, parts.map(([text, nbytes, hue]) => h("span", { className: "key" }, h("span", { className: "swatch", style: { background: `var(--${hue})` } }), text, h("span", { className: "number muted" }, formatBytes(nbytes))))));
}

function report(page, oom) {
  const objects = (value) => (Array.isArray(value) ? value.filter((each) => each && typeof each === "object") : []);
  const advice = objects(oom.advice);
  const replay = objects(oom.replay);
  const tensors = grouped(objects(oom.tensors)).slice(0, 20);
  const place = h("div");
  const around = 60;
  const whole = page.details.last_batch - page.details.first_batch <= 2 * around;
  const show = () => page.go("timeline", { x0: whole ? null : Math.max(page.details.first_batch, oom.batch - around), x1: whole ? null : Math.min(page.details.last_batch, oom.batch + around), pinned: oom.batch });
  const map = h("button", { onclick: async () => {
    replace(place, h("p", { className: "muted" }, "Reading the snapshot \u2026"));
    try {
      const read = reader(page, oom);
      snapshotView(place, await read(), null, page.source.live ? read : null);
    } catch (error) {
      replace(place, h("p", { className: "problem" }, error.message));
    }
  } }, "Show the snapshot as a map");
  return h("article", { className: "oom" },
    h("section", { className: "headline critical" }, h("div", { className: "grow" },
      h("h1", null, `Out of memory in batch ${formatCount(oom.batch)}`, oom.stage ? h("span", { className: "muted" }, ` ${oom.stage}`) : null),
      oom.cause ? h("p", null, inline(oom.cause)) : null, asked(oom)),
      h("div", { className: "acts" }, h("button", { className: "primary", onclick: show }, "Show on the timeline"),
        oom.snapshot && page.source.download ? h("a", { className: "button", href: page.source.download(page.at, oom.id), download: "" }, "Download the snapshot") : null,
        oom.map || (oom.snapshot && page.source.live) ? map : null)),
    place, capacityBar(page, oom),
    advice.length ? h("section", { className: "panel" }, h("h2", null, "What to change"), h("ol", { className: "advice-list" }, advice.map((each) => h("li", null, h("span", null, inline(sentence(each.text))), each.gain_bytes ? h("span", { className: "gain" }, `saves about ${formatBytes(each.gain_bytes)}`) : null)))) : null,
    h("div", { className: "columns" },
      h("section", { className: "panel" }, h("h2", null, "What held the memory"), oom.owners && typeof oom.owners === "object" ? ownersBar(oom.owners) : h("p", { className: "muted" }, "Owners are not known."),
        list(oom.lines_allocated === false ? "Lines that the functions holding it had reached" : "Top lines", oom.lines, (each) => [h("code", { title: String(each[0]) }, `${formatPlace(each[0], each[1])} ${each[2] ? `${each[2]}()` : ""}`), each[3]])),
      h("section", { className: "panel" }, h("h2", null, "With what settings it would have fitted"),
        replay.length ? table(["PYTORCH_CUDA_ALLOC_CONF", "Fits", "Reserved peak"], replay.map((each) => [h("code", null, String(each.conf ?? "")), each.fits ? h("span", { className: "yes" }, "\u2713 yes") : h("span", { className: "no" }, "\u2717 no"), formatBytes(each.reserved_peak_bytes)]), { numeric: [2], className: "replay" }) : h("p", { className: "muted" }, ["No allocation history was recorded to replay. To have one, pass ", h("code", null, 'history="always"'), " and run again."]))),
    tensors.length ? h("section", { className: "panel" }, h("h2", null, "Largest tensors"), table(["Tensor", "Shape", "Type", "Owner", "Memory"], tensors.map((each) => [[h("span", null, inline(String(each.name ?? ""))), each.count > 1 ? h("span", { className: "muted" }, ` ${each.count} \u00d7 ${formatBytes(each.bytes)}`) : null].filter(Boolean), `[${Array.isArray(each.shape) ? each.shape.join(", ") : ""}]`, String(each.dtype ?? ""), String(each.owner ?? "").replaceAll("_", " "), formatBytes(each.count * each.bytes)]), { numeric: [4] })) : null,
    oom.message ? h("section", { className: "panel" }, h("h2", null, "Original error"), h("pre", { className: "wrap" }, String(oom.message))) : null,
    oom.text ? h("section", { className: "panel" }, h("details", null, h("summary", null, "The whole report, as it was written to disk"), markdown(String(oom.text)))) : null);
}
