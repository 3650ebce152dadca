"""A thousand simulated ranks export to a collector that is killed and comes back: ``python -m tests.bench.fleet``.

Each rank is memguard's own recorder with its recording on disk, all rules and an OTLP exporter; a few processes run 250
of them each, in turns with 250 without an exporter. The collector is a process of its own on loopback, which decodes
what it gets: a receiver of OTLP's own protocol classes, a binary of OpenTelemetry's Collector could not be had. It is
killed (SIGKILL) after a third of the run and started again after two thirds. A node of eight ranks is scraped meanwhile
as Prometheus does it; what a real Prometheus server made of a training is in benchmarks/results/prometheus.md. The page
with the result is benchmarks/results/fleet.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from memguard.sinks.export.sink import EVERY_SECONDS
from tests.bench.rows import Row

PAGE = Path(__file__).parents[2] / "benchmarks" / "results" / "fleet.md"
RANKS, PROCESSES, TURNS, BATCHES = 1000, 4, 15, 80
"""Ranks, processes that run them, turns, and batches of each rank in a turn."""
TURN_SECONDS = 12.0
"""By the clock that paces exports, whatever a busy machine takes: a batch lasts 150 ms."""
NODE = 8
PACES = 0.15, 0.5, 2.0, 10.0
"""Seconds of a batch."""
GIB = 1 << 30

COLLECTOR = """
import json, sys, threading, time
from tests.sinks.export.receiver import Receiver
receiver = Receiver(int(sys.argv[1]))
print(receiver.port, flush=True)
for line in sys.stdin:
    ranks, series, batches = {}, {}, {}
    with receiver._lock:
        for (name, resource, attributes), point in receiver.series.items():
            rank = dict(resource)["memguard.rank"]
            series[rank] = series.get(rank, 0) + 1
            if name == "memguard.batches" and ("memguard.stage", "train") in attributes:
                batches[rank] = batches.get(rank, 0) + point.as_int
        found = {resource["memguard.rank"] for resource, record in receiver.logs}
        told = {"series": series, "batches": batches, "found": sorted(found)}
    print(json.dumps(told), flush=True)
"""


def measure(*, quick: bool = False) -> list[Row]:
    """The figures of the page; quick: a tenth of the ranks and a third of the turns."""
    ranks, turns = (RANKS // 10, TURNS // 3) if quick else (RANKS, TURNS)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder), ranks, turns)


def _measure(folder: Path, ranks: int, turns: int) -> list[Row]:
    collector, port = _collector(0)
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    each = ranks // PROCESSES
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.fleet", "--worker"]
    workers = [
        subprocess.Popen([*command, str(folder), str(number * each), str(each), str(turns)], env=environment,
                         stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        for number in range(PROCESSES)
    ]  # fmt: skip
    node = _Node(folder / "node")
    scrapes, first = [], {}
    for turn in range(turns):
        if turn == turns // 3:
            first = _ask(collector)
            collector.send_signal(signal.SIGKILL)
            collector.wait()
        if turn == 2 * turns // 3:
            collector, _ = _collector(port)
        scrapes.append(node.scrape(turn))
        for worker in workers:  # each does its turn
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "done\n"
    told = []
    for worker in workers:
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.close()
        told.append(json.loads(worker.stdout.read().splitlines()[-1]))  # may be buffered: communicate() would lose it
        worker.wait()
    node.close()
    last = _ask(collector)
    collector.kill()
    collector.communicate()
    return [*_costs(told), *_paces(), *_arrived(folder, told, first, last, ranks, turns), *_scraped(scrapes)]


def _paces() -> list[Row]:
    """More a batch with an exporter, by how long a batch lasts: in pairs with a rank without one, caches cold."""
    import numpy as np

    collector, port = _collector(0)
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
    rows, cold = [], np.zeros(32 << 20, dtype=np.uint8)
    for pace in PACES:
        with tempfile.TemporaryDirectory() as folder:
            pair = [_Rank(Path(folder) / str(export), 0, 1, export) for export in (None, "otlp")]
            costs = np.zeros((max(int(3 * EVERY_SECONDS / pace), 200), 2, 2))
            for batch in range(len(costs)):
                for at in (0, 1) if batch % 2 else (1, 0):
                    cold += 1
                    costs[batch, at] = pair[at].paced_batch(pace)
            for each in pair:
                each.recorder.close()
        more = (costs[:, 1] - costs[:, 0])[20:] * 1e6  # what takes long to load is loaded
        loop, lane = np.median(more[:, 0]), np.mean(more[:, 1])
        rows.append(Row(f"a batch of {pace:g} s: more in the loop's thread", loop, "us", 20.0))
        rows.append(Row(f"a batch of {pace:g} s: more in the slow lane's, exports included", lane, "us"))
    collector.kill()
    collector.communicate()
    return rows


def _costs(told: list[dict[str, Any]]) -> list[Row]:
    loop = [value for each in told for value in each["loop"]]
    lane = [value for each in told for value in each["lane"]]
    bare = [value for each in told for value in each["bare"]]
    away = [value for each in told for value in each["away"]]
    exports = (statistics.fmean(lane) - statistics.median(lane)) * BATCHES * EVERY_SECONDS / TURN_SECONDS
    return [
        Row("a batch of a rank without an exporter, processor time", statistics.median(bare), "us"),
        Row("more a batch with one: in the loop's thread", statistics.median(loop), "us", 20.0),
        Row("more a batch with one: in the slow lane's, which counts", statistics.median(lane), "us"),
        Row(f"more every {EVERY_SECONDS:g} seconds: an export, in the slow lane's", exports / 1000, "ms"),
        Row(
            "all of it together, of 80 batches of 150 ms that are counted at once",
            statistics.median(loop) + statistics.fmean(lane),
            "us",
            20.0,
        ),
        Row("more a batch while the collector is dead: in the loop's thread", statistics.median(away), "us", 20.0),
    ]


def _arrived(
    folder: Path, told: list[dict[str, Any]], first: dict[str, Any], last: dict[str, Any], ranks: int, turns: int
) -> list[Row]:
    from memguard.recording.reader import Recording
    from memguard.records.stats import Stage

    batches = turns * BATCHES
    whole = 0
    for rank in range(ranks):
        (path,) = (folder / "exporting" / "memguard").glob(f"rank{rank:05d}-*.bin")
        recording = Recording.open(path)
        trained = int(recording.stage_mask(Stage.TRAIN).sum())
        whole += trained == batches and not recording.notes and (recording.end or {}).get("reason") == "finished"
    counted = sum(count == batches for count in last["batches"].values())
    return [
        Row("ranks", ranks, ""),
        Row("batches of each rank", batches, ""),
        Row("recordings on disk without a gap, and with their end", whole, ""),
        Row("ranks of which the collector that came back counts every batch", counted, ""),
        Row("ranks whose finding, made while it was dead, reached it", len(last["found"]), ""),
        Row("series of a rank, at most, before the collector was killed", max(first["series"].values()), ""),
        Row("series of a rank, at most, at the end", max(last["series"].values()), ""),
        Row("all series", sum(last["series"].values()), ""),
        Row("failures of memguard's parts", sum(each["failures"] for each in told), "", 0.0),
    ]


def _scraped(scrapes: list[tuple[float, int, int]]) -> list[Row]:
    return [
        Row(
            f"Prometheus: a scrape of a node of {NODE} ranks", 1000 * statistics.median(s for s, _, _ in scrapes), "ms"
        ),
        Row("Prometheus: samples parsed in a scrape, at most", max(count for _, count, _ in scrapes), ""),
        Row("Prometheus: ranks seen in each scrape, at least", min(ranks for _, _, ranks in scrapes), ""),
    ]


def _collector(port: int) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-W", "ignore", "-c", COLLECTOR, str(port)]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    return made, int(made.stdout.readline())


def _ask(collector: subprocess.Popen[str]) -> dict[str, Any]:
    assert collector.stdin is not None and collector.stdout is not None
    collector.stdin.write("?\n")
    collector.stdin.flush()
    told: dict[str, Any] = json.loads(collector.stdout.readline())
    return told


class _Node:
    """Eight ranks of a node that Prometheus scrapes."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(self._port)
        self._ranks = [_Rank(folder, number, NODE, "prometheus") for number in range(NODE)]

    def scrape(self, turn: int) -> tuple[float, int, int]:
        """Seconds of a scrape, its samples, and the ranks in it."""
        from prometheus_client.parser import text_string_to_metric_families

        for rank in self._ranks:
            for _ in range(BATCHES):
                rank.batch()
            rank.recorder.judge()
            rank.seconds += TURN_SECONDS
            rank.deliver()
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://localhost:{self._port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        seconds = time.perf_counter() - began
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        batches = {each.labels["memguard_rank"] for each in samples
                   if each.name == "memguard_batches_total" and each.value == (turn + 1) * BATCHES}  # fmt: skip
        return seconds, len(samples), len(batches)

    def close(self) -> None:
        for rank in self._ranks:
            rank.recorder.close()


class _Rank:
    """One simulated rank: a recorder, its recording, the rules, and an exporter where it has one."""

    def __init__(self, folder: Path, number: int, ranks: int, export: str | None) -> None:
        from memguard.recorder import Recorder
        from memguard.records.stats import Run
        from memguard.rules import make_rules
        from memguard.sinks.export.place import Exporting
        from memguard.sinks.export.sink import make_export_sink
        from tests.fakes import ScriptedBackend

        self.sink, self.seconds = None, 100.0
        if export is not None:
            place = {"tp": number % 8, "pp": number * 4 // ranks, "dp": number // 8 % 8}
            who = Exporting(rank=number, world_size=ranks, node=str(number // 8), run="fleet", coordinates=place)
            self.sink = make_export_sink(export, who, clock=lambda: self.seconds)
        run = Run(device="cuda:0", rank=number, world_size=ranks)
        backend = ScriptedBackend([(400, 500 + number % 7)])
        sinks = [self.sink] if self.sink is not None else []
        self.recorder = Recorder(backend, run, logdir=folder, detectors=make_rules(rules=None, ignore=()), sinks=sinks)
        self.recorder.open({"rank": number})

    def batch(self) -> None:
        self.recorder.batch_start()
        self.recorder.row.optimizer_steps += 1
        self.recorder.batch_end()

    def paced_batch(self, seconds: float) -> tuple[float, float]:
        """One batch by itself, as slow ones come: processor time in the loop's thread, and in the slow lane's."""
        began = time.process_time()
        self.batch()
        self.recorder.judge()
        looped = time.process_time()
        self.seconds += seconds
        self.deliver()
        return looped - began, time.process_time() - looped

    def find(self) -> None:
        from tests.fakes import claim

        self.recorder.add(claim(message=f"rank {self.recorder.run.rank} keeps something."))

    def deliver(self) -> None:
        if self.sink is not None:
            self.sink.deliver()


def work(folder: Path, first: int, count: int, turns: int) -> dict[str, Any]:
    """One process of ranks: takes its turns as it is told on stdin, and measures."""
    from memguard.records.stats import Stage

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    ranks = {
        name: [_Rank(folder / name, number, RANKS, export) for number in range(first, first + count)]
        for name, export in (("bare", None), ("exporting", "otlp"))
    }
    for each in (*ranks["bare"], *ranks["exporting"]):
        each.recorder.stage_start(Stage.TRAIN, epoch=0)
    for each in ranks["exporting"]:  # what takes long to load is loaded
        each.batch()
        each.recorder.judge()
        each.deliver()
    costs: dict[str, list[float]] = {"loop": [], "lane": [], "bare": [], "away": []}
    for turn in range(turns):
        sys.stdin.readline()
        batches = BATCHES - (turn == 0)
        seconds = {}
        for name in ("bare", "exporting") if turn % 2 else ("exporting", "bare"):
            loop = time.process_time()
            for _ in range(batches):
                for each in ranks[name]:
                    each.batch()
            for each in ranks[name]:
                each.recorder.judge()
            lane = time.process_time()
            if turn == turns // 2 and name == "exporting":
                for each in ranks[name]:
                    each.find()
            for each in ranks[name]:
                each.seconds += TURN_SECONDS
                each.deliver()
            end = time.process_time()
            seconds[name] = lane - loop, end - lane
        one = 1e6 / (batches * count)
        more = (seconds["exporting"][0] - seconds["bare"][0]) * one
        costs["bare"].append(seconds["bare"][0] * one)
        costs["loop"].append(more)
        costs["lane"].append((seconds["exporting"][1] - seconds["bare"][1]) * one)
        if turns // 3 < turn < 2 * turns // 3:
            costs["away"].append(more)
        print("done", flush=True)
    failures = 0
    for each in (*ranks["exporting"], *ranks["bare"]):
        each.recorder.close()
        failures += any("failed" in note for note in each.recorder.summary.notes)
    return {**costs, "failures": failures}


def page(rows: list[Row]) -> str:
    """The result as a page."""
    lines = [
        "# A thousand ranks and a collector",
        "",
        (__doc__ or "").partition("\n\n")[2].strip(),
        "",
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {datetime.date.today()}.",
        "",
        "| | | aim |",
        "|---|---|---|",
    ]
    for row in rows:
        aim = f"at most {row.at_most:g}" if row.at_most is not None else ""
        lines.append(f"| {row.label} | {row.text} {row.unit} | {aim} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundred ranks, rough figures")
    parser.add_argument("--paces", action="store_true", help="only what batches of different length pay")
    parser.add_argument("--save", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(work(Path(given.worker[0]), *map(int, given.worker[1:]))))
    else:
        measured = _paces() if given.paces else measure(quick=given.quick)
        print(page(measured))
        if given.save and not given.paces:
            PAGE.write_text(page(measured), encoding="utf-8")
