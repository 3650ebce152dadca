"""The real allocator on the null GPU, driven beside the simulated one; also records the golden traces.

python -m tests.cuda.allocator_fuzz [--count 2000] [--seeds 1] [--configs a,b] [--modes a,b] [--golden FILE]
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.allocator.operations import (
    CONFIGS,
    MODES,
    Event,
    Operation,
    Run,
    comparable_segments,
    describe,
    in_known_order,
)
from tests.allocator.simulated import BASE, Simulated

CHECK_EVERY = 97
TOTALS_GIB = (3, 16)
_EVENTS = {
    *("alloc", "free_requested", "free_completed", "oom"),
    *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
}


class Real:
    """An ``Executor`` over PyTorch's own allocator, in a process whose CUDA has not begun."""

    def __init__(self, run: Run) -> None:
        os.environ.update(
            PYTORCH_CUDA_ALLOC_CONF=run.conf,
            NULLGPU_TOTAL=f"{run.total_gib}G",
            NULLGPU_PENDING=str(int(run.mode == "pending")),
        )
        import torch

        self._torch, self._cuda = torch, torch.cuda
        self._cuda.init()
        if self._cuda.get_device_name() != "Null GPU":
            raise SystemExit("the fuzz needs the null GPU: a real one has other tenants and other addresses")
        side = sorted((self._cuda.Stream() for _ in range(2)), key=lambda stream: stream.cuda_stream)
        self._streams = [self._cuda.default_stream(), *side]
        self._numbers = {stream.cuda_stream: number for number, stream in enumerate(self._streams)}
        self._tensors: list[Any] = []
        self._options = run.pool_options
        self._pool = None if self._options is None else self._cuda.MemPool(**self._options)
        self._pool_ids = [tuple(self._pool.id)] if self._pool else []
        self._cuda.memory._record_memory_history(context=None, max_entries=1_000_000)

    def apply(self, operation: Operation) -> int | str | None:
        name, *arguments = operation
        if name == "malloc":
            return self._malloc(*arguments)
        if name == "free":
            self._tensors[arguments[0]] = None
        elif name == "record_stream":
            tensor = self._tensors[arguments[0]]
            if tensor is not None:
                tensor.record_stream(self._streams[arguments[1]])
        elif name == "renew_pool":
            self._pool = None
            self._pool = self._cuda.MemPool(**(self._options or {}))
            self._pool_ids.append(tuple(self._pool.id))
        elif name == "set_fraction":
            self._cuda.set_per_process_memory_fraction(*arguments)
        elif name == "reset_peak":
            self._cuda.reset_peak_memory_stats()
        elif name == "reset_accumulated":
            self._cuda.reset_accumulated_memory_stats()
        else:
            getattr(self._cuda, name)()
        return None

    def _malloc(self, nbytes: int, stream: int, pool: int) -> int | str:
        try:
            with self._cuda.stream(self._streams[stream]):
                if pool:
                    with self._cuda.use_mem_pool(self._pool):
                        tensor = self._torch.empty(nbytes, dtype=self._torch.uint8, device="cuda")
                else:
                    tensor = self._torch.empty(nbytes, dtype=self._torch.uint8, device="cuda")
        except self._torch.OutOfMemoryError as error:
            self._tensors.append(None)
            return str(error)
        self._tensors.append(tensor)
        address: int = tensor.data_ptr()
        return address - BASE if address else 0

    def stats(self) -> dict[str, int]:
        return dict(self._cuda.memory_stats())

    def segments(self) -> list[Any]:
        segments = self._cuda.memory._snapshot()["segments"]
        for segment in segments:
            segment["stream"] = self._numbers[segment["stream"]]
        return comparable_segments(segments, BASE, self._pool_ids)

    def events(self) -> list[Event]:
        return [
            (
                event["action"],
                event["device_free"] if event["action"] == "oom" else event["addr"] - BASE,
                event["size"],
                self._numbers[event["stream"]],
            )
            for event in self._cuda.memory._snapshot()["device_traces"][0]
            if event["action"] in _EVENTS
        ]


def difference(run: Run) -> tuple[str | None, Counter[str]]:
    """The first thing in which the two differ, None if they do not, and what happened on the way."""
    real, simulated = Real(run), Simulated(run)
    seen: Counter[str] = Counter()
    for step, operation in enumerate(run.operations()):
        expected, got = real.apply(operation), simulated.apply(operation)
        seen["operations"] += 1
        seen["ooms"] += isinstance(expected, str)
        if expected != got:
            return f"step {step}, {operation}: {expected!r}, simulated {got!r}", seen
        if step % CHECK_EVERY == 0 or step == run.count - 1:
            want, have = run.comparable(real.stats()), run.comparable(simulated.stats())
            if want != have:
                wrong = [
                    f"{k} {want.get(k)}, simulated {have.get(k)}" for k in want | have if want.get(k) != have.get(k)
                ]
                return f"step {step}, {operation}: {'; '.join(wrong[:5])}", seen
    end = real.stats()
    seen.update(retries=end["num_alloc_retries"], device_allocs=end["num_device_alloc"])
    if (want := real.segments()) != (have := simulated.segments()):
        wrong = [(a, b) for a, b in zip(want, have, strict=False) if a != b]
        return f"{len(want)} segments, simulated {len(have)}; first difference {wrong[:1]}", seen
    want_events, have_events = real.events(), simulated.events()
    if run.mode != "plain":
        want_events, have_events = in_known_order(want_events), in_known_order(have_events)
    if want_events != have_events:
        pairs = enumerate(zip(want_events, have_events, strict=False))
        wrong = [(i, a, b) for i, (a, b) in pairs if a != b]
        return f"{len(want_events)} events, simulated {len(have_events)}; first difference {wrong[:1]}", seen
    return None, seen


def record(run: Run) -> dict[str, Any]:
    """A golden trace: the operations, what came of each on the real allocator, its statistics at some and the end."""
    real = Real(run)
    operations = list(run.operations())
    results, stats = [], {}
    for step, operation in enumerate(operations):
        results.append(real.apply(operation))
        if step % CHECK_EVERY == 0 or step == run.count - 1:
            stats[str(step)] = run.comparable(real.stats())
    return {
        "run": describe(run),
        "torch": real._torch.__version__,
        "operations": operations,
        "results": results,
        "stats": stats,
        "segments": real.segments(),
    }


def in_child(work: Any, run: Run) -> tuple[int, int]:
    """Starts ``work(run)`` in a fork, which has torch imported but CUDA not begun; gives its id and a pipe to read."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    try:
        answer = work(run)
    except BaseException:
        answer = (traceback.format_exc(), {})
    with os.fdopen(write, "w") as pipe:
        json.dump(answer, pipe)
    os._exit(0)


def each(work: Any, runs: list[Run], jobs: int) -> Iterator[tuple[Run, Any]]:
    """Results of ``work`` in order, ``jobs`` processes at a time."""
    waiting: list[tuple[Run, int, int]] = []
    todo = iter(runs)
    while True:
        while len(waiting) < jobs and (run := next(todo, None)) is not None:
            waiting.append((run, *in_child(work, run)))
        if not waiting:
            return
        run, pid, read = waiting.pop(0)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        os.waitpid(pid, 0)
        yield run, json.loads(text) if text else ("the process died", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="operations of one run")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--configs", default=",".join(CONFIGS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--golden", help="record the real allocator alone into this file")
    options = parser.parse_args()
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # no line for each failed mapping
    import torch  # noqa: F401

    runs = [
        Run(config, total, mode, seed, options.count)
        for seed in range(options.seeds)
        for config in options.configs.split(",")
        for mode in options.modes.split(",")
        for total in TOTALS_GIB
    ]
    if options.golden:
        traces = [trace for _, trace in each(record, runs, options.jobs)]
        with lzma.open(options.golden, "wt", preset=9) as file:
            json.dump(traces, file, separators=(",", ":"))
        return 0
    totals: Counter[str] = Counter()
    for run, (text, seen) in each(difference, runs, options.jobs):
        totals.update(runs=1, mismatches=text is not None)
        totals.update(seen)
        if text is not None:
            print(f"{run}: {text}", flush=True)
    print(json.dumps(totals))
    return 1 if totals["mismatches"] else 0


if __name__ == "__main__":
    sys.exit(main())
