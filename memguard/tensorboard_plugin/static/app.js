// The page: which run it shows and in which view; keeps both up to date while the run goes on.

import { link, onAddress, readAddress, writeAddress } from "./address.js";
import { h, replace } from "./dom.js";
import { comparison } from "./comparison.js";
import { copy } from "./export.js";
import { findings } from "./findings.js";
import { oom } from "./oom.js";
import { overview } from "./overview.js";
import { snapshot } from "./snapshot.js";
import { followTheme, onTheme } from "./theme.js";
import { timeline } from "./timeline.js";

const VIEWS = { overview: ["Overview", overview], timeline: ["Timeline", timeline], findings: ["Findings", findings], oom: ["Out of memory", oom], snapshot: ["Snapshot", snapshot], compare: ["Compare", comparison] };
const OF_SERVER = ["overview", "compare"]; // views that a report of one run has not
const START = { view: "", run: null, rank: null, start: 0, device: 0, pinned: null, x0: null, x1: null, filter: "", oom: null, finding: null, other: null };
const NUMBERS = ["start", "device", "pinned", "x0", "x1"];
const SOON = 800; // milliseconds: what changes again so soon is one step for Back
const POLL = 5000;

// Shows the page of a source in an element; `styled` is awaited before anything is measured.
export async function start(source, root, styled) {
  followTheme();
  const page = new Page(source, root);
  await page.open(styled);
  return page;
}

class Page {
  constructor(source, root) {
    this.source = source;
    this.runs = [];
    this.details = null;
    this.view = null;
    this.shown = 0;
    this.state = { ...START, ...stateIn(readAddress()) };
    this.changed = 0;
    this.header = h("header", { className: "bar" });
    this.main = h("main", { tabIndex: -1 });
    this.note = h("p", { className: "problem", role: "alert", hidden: true });
    replace(root, this.header, this.note, this.main);
    root.classList.add("memguard");
    this.root = root;
  }

  async open(styled) {
    await Promise.all([this.refresh(), styled]);
    onTheme(() => this.show());
    await this.show();
    this.tellAddress(false);
    onAddress(() => this.follow());
    if (this.source.live) {
      this.timer = setTimeout(() => this.poll(), POLL);
      window.addEventListener("focus", () => this.poll());
    }
  }

  get at() {
    const rank = this.state.rank === "all" ? this.worstRank() : this.state.rank;
    const has = this.state.rank !== "all" && this.devicesOf(rank).some((each) => each.number === this.state.device);
    return { run: this.state.run, rank, start: this.state.start, device: has ? this.state.device : 0 };
  }

  get run() {
    return this.runs.find((run) => run.name === this.state.run);
  }

  devicesOf(rank) {
    return this.run?.ranks.find((each) => each.rank === rank)?.devices ?? [];
  }

  worstRank() {
    const peak = (rank) => rank.peak?.allocated_peak_bytes ?? -1;
    return (this.run?.ranks ?? []).reduce((worst, rank) => (!worst || peak(rank) > peak(worst) ? rank : worst), null)?.rank ?? 0;
  }

  // Goes to a view, with some of the state changed.
  async go(view, changes = {}) {
    const run = this.state.run;
    Object.assign(this.state, { view }, changes);
    if (this.state.run !== run) Object.assign(this.state, { rank: telling(this.run?.ranks ?? [])?.rank ?? 0, start: 0, device: 0, pinned: null, x0: null, x1: null, oom: null }, changes);
    this.tellAddress();
    this.leave();
    await this.load();
    await this.show();
    window.scrollTo(0, 0);
  }

  // The address says what the page shows; a new step for Back, unless the last one was only just now.
  tellAddress(steps = true) {
    const values = Object.fromEntries(Object.entries(this.state).filter(([name, value]) => value !== START[name] && this.runs.length));
    const now = Date.now();
    writeAddress(values, steps && now - this.changed > SOON);
    if (steps) this.changed = now;
    this.told = JSON.stringify(readAddress());
  }

  // Back, forward, or an address that somebody typed.
  async follow() {
    const values = readAddress();
    if (!values || JSON.stringify(values) === this.told) return;
    this.told = JSON.stringify(values);
    if (!Object.keys(values).length) return;
    Object.assign(this.state, START, stateIn(values));
    this.settle();
    this.leave();
    await this.load();
    await this.show();
  }

  // Reads the list of runs and the details of the one shown; true if anything changed.
  async refresh() {
    try {
      let list = await this.source.runs(this.state.run);
      for (let tries = 0; list.pending && tries < 100; tries += 1) {
        if (this.runs.length && tries) break;
        this.runs = list.runs;
        if (list.runs.some((run) => run.name === this.state.run && !run.ranks.some((rank) => rank.pending))) break;
        list = await this.source.runs(this.state.run);
      }
      this.runs = list.runs;
      this.pending = list.pending;
      this.time = list.time;
      this.tell("");
    } catch (error) {
      this.tell(`The server does not answer: ${error.message}`);
      return false;
    }
    this.settle();
    return this.load();
  }

  // What the state leaves open, or asks for though it is not there.
  settle() {
    if (!this.run) {
      this.state.run = mostTelling(this.runs)?.name ?? null;
      if (!this.state.view || (this.state.run === null && this.state.view !== "snapshot")) this.state.view = this.runs.length > 1 ? "overview" : "timeline";
    }
    if (!VIEWS[this.state.view]) this.state.view = "timeline";
    const ranks = this.run?.ranks.map((rank) => rank.rank) ?? [];
    if (!(this.state.rank === "all" && ranks.length > 1) && !ranks.includes(this.state.rank)) this.state.rank = telling(this.run?.ranks ?? [])?.rank ?? 0;
  }

  async load() {
    if (this.state.run === null) return false;
    const key = JSON.stringify(this.at);
    const version = this.detailsKey === key ? this.details?.version : undefined;
    try {
      const fresh = await this.source.details(this.at, version);
      if (fresh.same) return false;
      this.details = fresh;
      this.detailsKey = key;
    } catch (error) {
      this.details = null;
      this.detailsKey = null;
      this.tell(error.message);
    }
    return true;
  }

  // What is on the page no longer counts: it is not ready until what comes next is drawn.
  leave() {
    this.root.dataset.ready = "";
    return (this.shown += 1);
  }

  async show() {
    const number = this.leave();
    this.view?.destroy?.();
    this.view = null;
    this.drawHeader();
    if (this.state.run === null && this.state.view !== "snapshot") {
      replace(this.main, empty());
    } else if (this.state.view !== "overview" && this.state.view !== "snapshot" && !this.details) {
      replace(this.main, h("p", { className: "calm" }, "This recording cannot be shown."));
    } else {
      replace(this.main);
      const view = VIEWS[this.state.view][1];
      try {
        const made = await view(this, this.main);
        if (number !== this.shown) return made?.destroy?.();
        this.view = made;
      } catch (error) {
        this.tell(error.message);
      }
    }
    if (number === this.shown) this.root.dataset.ready = this.state.run === null && this.state.view !== "snapshot" ? "empty" : this.state.view;
  }

  drawHeader() {
    const counts = { findings: this.details?.findings.length, oom: this.details?.ooms.length };
    const tabs = Object.entries(VIEWS).filter(([name]) => this.source.live || !OF_SERVER.includes(name)).filter(([name]) => name !== "compare" || this.runs.length > 1).filter(([name]) => this.source.live || name !== "snapshot" || this.details?.ooms.some((each) => each.map));
    const buttons = tabs.map(([name, [title]]) => h("button", {
      className: "tab", role: "tab", data: { view: name }, "aria-selected": String(name === this.state.view), tabIndex: name === this.state.view ? 0 : -1,
      onclick: () => this.go(name), onkeydown: (event) => moveFocus(event),
    }, title, counts[name] ? h("span", { className: `count ${name}` }, String(counts[name])) : null));
    replace(this.header, h("nav", { role: "tablist", "aria-label": "Views" }, buttons), h("div", { className: "choices" }, this.selectors(), h("button", { className: "tool", id: "copy-link", title: "Copy the address of what is shown", onclick: (event) => {
      this.tellAddress();
      return copy(event.target, link());
    } }, "Copy link")));
    const [strip, chosen] = [this.header.querySelector("nav"), this.header.querySelector("[aria-selected=true]")];
    if (chosen) strip.scrollLeft = chosen.offsetLeft - (strip.clientWidth - chosen.offsetWidth) / 2; // of a narrow screen
  }

  selectors() {
    const chosen = this.run;
    if (!chosen) return [];
    if (!this.source.live && this.runs.length === 1 && chosen.ranks.length === 1) return [h("span", { className: "muted" }, chosen.name)];
    const choice = (label, id, value, entries, change) => h("label", null, h("span", { className: "muted" }, label), h("select", { id, onchange: (event) => change(event.target.value) },
      entries.map(([each, text]) => h("option", { value: each, selected: String(each) === String(value) }, text))));
    const made = [choice("Run", "run", chosen.name, this.runs.map((run) => [run.name, shorten(run.name)]), (run) => this.go(this.state.view === "overview" ? "timeline" : this.state.view, { run }))];
    if (chosen.ranks.length > 1) {
      const ranks = chosen.ranks.map((rank) => [rank.rank, `rank ${rank.rank}`]);
      made.push(choice("Rank", "rank", this.state.rank, [["all", "all ranks"], ...ranks], (rank) => this.go(this.state.view, { rank: rank === "all" ? "all" : Number(rank), pinned: null })));
    }
    const devices = this.state.rank === "all" ? [] : this.devicesOf(this.at.rank);
    if (devices.length) {
      const first = chosen.ranks.find((rank) => rank.rank === this.at.rank)?.device ?? "first";
      made.push(choice("Device", "device", this.at.device, [[0, first], ...devices.map((each) => [each.number, each.device])], (device) => this.go(this.state.view, { device: Number(device), pinned: null })));
    }
    const starts = chosen.ranks.find((rank) => rank.rank === this.at.rank)?.starts ?? [];
    if (starts.length > 1) {
      made.push(choice("Start", "start", this.state.start, starts.map((name, number) => [number, startText(name, number)]), (begin) => this.go(this.state.view, { start: Number(begin), pinned: null, x0: null, x1: null })));
    }
    return made;
  }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    clearTimeout(this.timer);
    try {
      if (window.innerHeight > 0 && document.visibilityState === "visible") {
        const before = this.state.run;
        const changed = await this.refresh();
        if (before === null && this.state.run !== null) await this.show();
        else if (changed && this.view?.update) {
          if (!this.header.contains(document.activeElement)) this.drawHeader();
          await this.view.update();
        }
      }
    } catch (error) {
      this.tell(error.message);
    }
    this.polling = false;
    this.timer = setTimeout(() => this.poll(), this.pending ? 300 : POLL);
  }

  tell(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }
}

function trouble(rank) {
  return (rank.ooms ? 8 : 0) + (rank.findings?.critical ? 4 : 0) + (rank.findings?.warning ? 2 : 0);
}

// The rank to open with: the worst trouble, then the highest peak.
function telling(ranks) {
  const peak = (rank) => rank.peak?.allocated_peak_bytes ?? -1;
  return [...ranks].sort((a, b) => trouble(b) - trouble(a) || peak(b) - peak(a))[0];
}

// The run to open with: the worst finding, then the newest.
function mostTelling(runs) {
  const weight = (run) => Math.max(...run.ranks.map(trouble));
  const time = (run) => Math.max(...run.ranks.map((rank) => rank.time ?? 0));
  const readable = (run) => (run.ranks.some((rank) => !rank.problem) ? 1 : 0);
  return [...runs].sort((a, b) => readable(b) - readable(a) || weight(b) - weight(a) || time(b) - time(a))[0];
}

function shorten(name) {
  return name.length > 60 ? `${name.slice(0, 28)} \u2026 ${name.slice(-28)}` : name;
}

function startText(name, number) {
  const match = /(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)/.exec(name);
  const time = match ? `${match[1]}-${match[2]}-${match[3]} ${match[4]}:${match[5]}:${match[6]}` : shorten(name);
  return number === 0 ? `${time} (newest)` : time;
}

function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...event.target.parentElement.children];
  tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length].focus();
  event.preventDefault();
}

function empty() {
  const code = (text) => h("pre", null, text);
  return h("section", { className: "empty" },
    h("h1", null, "No recording here yet"),
    h("p", null, "memguard records the memory of every batch. Add it to a training, and this page fills by itself:"),
    h("h2", null, "Lightning"), code("trainer = Trainer(callbacks=[memguard.MemGuard()])"),
    h("h2", null, "Plain PyTorch"), code("model = memguard.wrap(model)"),
    h("h2", null, "A script you do not want to change"), code("memguard run --logdir runs/first train.py"),
    h("p", { className: "muted" }, "TensorBoard must look at the same directory: tensorboard --logdir runs"));
}

function stateIn(values) {
  const state = {};
  for (const [name, text] of Object.entries(values ?? {})) {
    if (!(name in START)) continue;
    const number = NUMBERS.includes(name) || (name === "rank" && text !== "all");
    if (!number) state[name] = text;
    else if (text !== "" && Number.isFinite(Number(text))) state[name] = Number(text);
  }
  if ((state.x0 ?? null) === null || (state.x1 ?? null) === null || state.x0 > state.x1) [state.x0, state.x1] = [null, null];
  return state;
}
