"""How fast the Memory tab is: 20 runs, one of a million batches; a snapshot of 100 MB; what its server weighs."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from tests.bench.snapshot_reader import EVENTS, generated
from tests.browser.chromium import CHROMIUM, Visit, browser
from tests.tensorboard_plugin.make_logdir import make_leak, make_long, spikes

RUNS, BATCHES, SPIKES = 20, 1_000_000, 50
CHART = "document.querySelector('.panel.chart')"


def measure() -> list[tuple[str, float, str] | tuple[str, float, str, float]]:
    """What is measured, how much, its unit, and what it should be at most."""
    if not Path(CHROMIUM).exists():
        return []
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder)
        for number in range(RUNS - 1):
            make_leak(logdir / f"run-{number:02d}").close()
        make_long(logdir / "million", BATCHES, SPIKES)
        (logdir / "large.pickle").write_bytes(generated(EVENTS))
        return _measure(logdir)


def _measure(logdir: Path) -> list[tuple[str, float, str] | tuple[str, float, str, float]]:
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0"]
    server = subprocess.Popen([*command, "--load_fast", "false"], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        urllib.request.urlopen(f"{url}/data/plugin_entry.html?name=memguard").close()  # TensorBoard itself is up
        idle = psutil.Process(server.pid).memory_info().rss
        with browser() as running:
            first, again, zooms, found = _visit(running, url)
            weight = psutil.Process(server.pid).memory_info().rss
            dropped = _drop(running, url, logdir / "large.pickle")
    finally:
        server.terminate()
        server.wait()
    return [
        ("Memory tab, first chart of a million batches, cold server", first, "ms", 1000),
        ("Memory tab, first chart of a million batches, warm server", again, "ms", 1000),
        ("Memory tab, zoom, median", sorted(zooms)[len(zooms) // 2], "ms", 150),
        ("Memory tab, zoom, slowest", max(zooms), "ms", 150),
        (f"Memory tab, one-batch spikes visible of {SPIKES}", found, "spikes"),
        ("Memory tab, a dropped snapshot of 100 MB until its timeline", dropped, "s", 6),
        ("Memory tab, server's memory before", idle / 2**20, "MiB"),
        ("Memory tab, server's memory after", weight / 2**20, "MiB"),
    ]


def _visit(running: Any, url: str) -> tuple[float, float, list[float], int]:
    page = running.new_page(viewport={"width": 1440, "height": 1000})
    visit = Visit(page)
    page.goto(f"{url}/data/plugin/memguard/static/vendor/uPlot.min.css")  # the browser itself is awake
    began = time.perf_counter()
    frame = _open(page, url)
    first = (time.perf_counter() - began) * 1e3
    began = time.perf_counter()
    frame = _open(page, url)
    again = (time.perf_counter() - began) * 1e3
    frame.wait_for_selector("body[data-ready=timeline]")
    assert frame.inner_text("#tile-batches") == f"{BATCHES:,}"
    seen = _spikes_seen(frame)
    frame.focus(".plot")
    zooms = [_zoom(frame, key) for key in ("+",) * 10 + ("ArrowRight",) * 3 + ("-",) * 5]
    assert visit.complaints == []
    return first, again, zooms, seen


def _open(page: Any, url: str) -> Any:
    shown = "#memguard&p.memguard.run=million&p.memguard.view=timeline"
    page.goto("about:blank")
    page.goto(f"{url}/data/plugin_entry.html?name=memguard{shown}", wait_until="commit")
    page.wait_for_selector(".plot canvas")
    return page.main_frame


def _drop(running: Any, url: str, file: Path) -> float:
    """Seconds from choosing a snapshot's file until its history is drawn."""
    page = running.new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(120_000)
    frame = Visit(page).alone(url)
    frame.click("[data-view=snapshot]")
    frame.wait_for_selector("body[data-ready=snapshot]")
    began = time.perf_counter()
    frame.set_input_files("#snapshot-file", str(file))
    frame.wait_for_selector("#history canvas")
    return time.perf_counter() - began


def _spikes_seen(frame: Any) -> int:
    """How many spikes have a pixel of the peak's colour at their place, high above the others."""
    columns = frame.evaluate(
        """() => {
            const canvas = document.querySelector('.plot canvas');
            const over = document.querySelector('.plot .u-over');
            const [left, top] = [over.offsetLeft, over.offsetTop];
            const y = top + Math.round(over.clientHeight * (1 - 15 / (24 * 1.09)));
            const data = canvas.getContext('2d').getImageData(left, y, over.clientWidth, 1).data;
            return Array.from({length: over.clientWidth}, (_, x) => data[4 * x + 2] - data[4 * x] > 60);
        }"""
    )
    width = len(columns)
    places = [round(batch / (BATCHES - 1) * width) for batch in spikes(SPIKES, BATCHES)]
    return sum(any(columns[max(0, place - 2) : place + 3]) for place in places)


def _zoom(frame: Any, key: str) -> float:
    """Milliseconds from a key to the new rows being drawn."""
    cost = frame.evaluate(
        f"""key => new Promise(done => {{
            const chart = {CHART};
            const began = performance.now();
            const watch = new MutationObserver(() => {{
                watch.disconnect();
                requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
            }});
            watch.observe(chart, {{attributes: true, attributeFilter: ['data-rows']}});
            document.querySelector('.plot').dispatchEvent(new KeyboardEvent('keydown', {{key, bubbles: true}}));
        }})""",
        key,
    )
    return float(cost)


if __name__ == "__main__":
    for label, value, unit, *_ in measure():
        print(f"{label:70}{value:12,.0f} {unit}")
