"""A Prometheus server scrapes a training of four ranks: ``python -m tests.bench.prometheus_server --bin DIR``.

Four processes train on a virtual GPU with ``export="prometheus"``; the server scrapes their node's port every two
seconds. Its answers to queries are compared with what the ranks recorded on disk, and ``promtool check metrics`` reads
one scrape. ``DIR`` has the programs ``prometheus`` and ``promtool`` (Debian's ``prometheus``). The page with the
result is benchmarks/results/prometheus.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.bench.rows import Row

PAGE = Path(__file__).parents[2] / "benchmarks" / "results" / "prometheus.md"
RANKS = 4
TRAIN = """
import sys, time
import torch, memguard
rank, folder, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
memguard.coordinates(pp=rank // 2, tp=rank % 2)
model = torch.nn.Sequential(torch.nn.Linear(64, 64 * (1 + rank)), torch.nn.Linear(64 * (1 + rank), 8))
optimizer, kept, until = torch.optim.SGD(model.parameters()), [], time.time() + seconds
options = {"device": "virtual:64MiB", "logdir": folder, "export": "prometheus", "quiet": True}
with memguard.watch(model, optimizer, **options) as guard:
    for _ in guard.batches(iter(lambda: time.time() < until, False)):
        loss = model(torch.ones(32, 64)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 3:
            kept.append(loss)
        time.sleep(0.05)
    time.sleep(8)
    print("batches end", flush=True)
    sys.stdin.readline()
"""


def measure(folder: Path, programs: Path, seconds: float) -> list[Row]:
    """Runs the training and the server, and compares what each says."""
    port, own = _free(), _free()
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 2s}\n"
        f"scrape_configs: [{{job_name: memguard, static_configs: [{{targets: ['localhost:{port}']}}]}}]\n"
    )
    environment = {**os.environ, "OTEL_EXPORTER_PROMETHEUS_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    environment |= {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", TRAIN, str(rank), str(folder / "run"), str(seconds)],
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    command = [programs / "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{own}"], stderr=log)
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "batches end\n"
        time.sleep(5)  # two more scrapes
        with urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=30) as answer:
            scrape = answer.read()
        checked = subprocess.run([programs / "promtool", "check", "metrics"], input=scrape, capture_output=True)
        rows = _compared(_Server(own), folder / "run", seconds)
        for rank in ranks:
            rank.communicate("\n")
        promtool = (checked.stdout + checked.stderr).decode().strip()
        return [*rows, Row(f"promtool check metrics: exit code ({promtool or 'silent'})", checked.returncode, "", 0.0)]
    finally:
        server.terminate()
        server.wait()
        for rank in ranks:
            rank.kill()
            rank.communicate()


class _Server:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/query?"

    def ask(self, query: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self._base + urllib.parse.urlencode({"query": query}), timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success"
        result: list[dict[str, Any]] = told["data"]["result"]
        return result

    def by_rank(self, query: str) -> dict[int, float]:
        return {int(each["metric"]["memguard_rank"]): float(each["value"][1]) for each in self.ask(query)}


def _compared(server: _Server, run: Path, seconds: float) -> list[Row]:
    from memguard.recording.reader import Recording, find_recordings
    from memguard.records.stats import Stage

    recordings = {int(str(each.session["rank"])): each for each in map(Recording.open, find_recordings(str(run)))}
    batches = server.by_rank('memguard_batches_total{memguard_stage="train"}')
    counted = server.by_rank('memguard_batch_memory_allocated_bytes_count{memguard_stage="train"}')
    summed = server.by_rank('memguard_batch_memory_allocated_bytes_sum{memguard_stage="train"}')
    peaks = server.by_rank('max_over_time(memguard_memory_allocated_bytes{memguard_stage="train"}[1h])')
    places = {int(each["metric"]["memguard_rank"]): each["metric"] for each in server.ask("memguard_batches_total")}
    found = {each["metric"]["memguard_rank"] for each in server.ask("memguard_findings")}
    right = dict.fromkeys(("batches", "counted", "summed", "peaks", "places"), 0)
    for rank, recording in recordings.items():
        trained = recording.stage_mask(Stage.TRAIN)
        sizes = recording.column("allocated_peak_bytes")[trained]
        right["batches"] += batches.get(rank) == trained.sum()
        right["counted"] += counted.get(rank) == trained.sum()
        right["summed"] += summed.get(rank) == sizes.sum()
        right["peaks"] += peaks.get(rank) == sizes.max()
        place = places.get(rank, {})
        told = place.get("memguard_parallel_pp"), place.get("memguard_parallel_tp")
        right["places"] += told == (str(rank // 2), str(rank % 2))
    up = [value == "1" for _, value in server.ask("up[1h]")[0]["values"]]
    up = up[up.index(True) :]
    took = float(server.ask("max_over_time(scrape_duration_seconds[1h])")[0]["value"][1])
    series = server.ask('count({__name__=~"memguard_.*|hw_gpu.*|process_memory.*"})')
    return [
        Row("ranks", len(recordings), ""),
        Row("seconds of training", seconds, "s"),
        Row("scrapes since the port was open", len(up), ""),
        Row("of these answered", sum(up), ""),
        Row("a scrape takes at most", 1000 * took, "ms"),
        Row("series of the node", float(series[0]["value"][1]), ""),
        Row("batches recorded by all ranks", sum(len(each) for each in recordings.values()), ""),
        Row("ranks whose counter of batches is that of the recording", right["batches"], ""),
        Row("ranks whose histogram of allocated memory counts every batch", right["counted"], ""),
        Row("ranks whose histogram's sum is that of the recording, to the byte", right["summed"], ""),
        Row("ranks whose highest gauge is the recording's peak, to the byte", right["peaks"], ""),
        Row("ranks with their parallel coordinates as labels", right["places"], ""),
        Row("ranks that count a finding (rank 3 keeps its losses)", len(found), ""),
    ]  # fmt: skip


def _free() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def page(rows: list[Row], version: str) -> str:
    """The result as a page."""
    lines = [
        "# A Prometheus server",
        "",
        (__doc__ or "").partition("\n\n")[2].strip(),
        "",
        f"Measured with {version}.",
        "",
    ]
    lines += ["| | |", "|---|---|", *(f"| {row.label} | {row.text} {row.unit} |" for row in rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True, help="directory of prometheus and promtool")
    parser.add_argument("--seconds", type=float, default=180.0, help="of training")
    parser.add_argument("--save", action="store_true", help=f"write {PAGE.name}")
    given = parser.parse_args()
    told = subprocess.run([given.bin / "prometheus", "--version"], capture_output=True, text=True, check=True)
    named = re.match(r"prometheus, version \S+", told.stdout or told.stderr)
    with tempfile.TemporaryDirectory() as name:
        text = page(measure(Path(name), given.bin, given.seconds), named[0] if named else "an unknown version")
    print(text)
    if given.save:
        PAGE.write_text(text, encoding="utf-8")
