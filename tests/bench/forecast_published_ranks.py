"""Forecasts beside the memory of distributed (and single) trainings of Llama that others published.

    python -m tests.bench.forecast_published_ranks --data ../shared/forecast --out benchmarks/results/FILE.md

The figures are read from ``distributed/README.md`` of a folder that is not committed. Rows with float8 are left out.
The torchtitan project's log tells the peak of reserved memory; torchtune's figures are taken to be those of allocated.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from memguard.forecast import forecast_of
from tests.bench.published_ranks import sharded
from tests.bench.published_tuning import tuned

GIB = 2**30
_WAITING = "what checkpoints keep waits on the host"
_ALL = "no checkpoints"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A published run, and the program that stands for it."""

    name: str
    published: str
    """Pattern of its figure in the text."""
    make: Callable[[], Any]
    device: str
    reserved: bool = False
    """The figure is the peak of reserved memory."""
    nproc: int | None = None
    nnodes: int = 1
    version: str = "2.5"
    """PyTorch's at that time."""
    assumed: str = ""
    """What the publication does not say."""


def _titan(gpus: int, compiled: bool) -> Run:
    extras = "torch.compile" if compiled else ""
    return Run(
        name=f"torchtitan, 8B on {gpus} H100: FSDP {gpus}, 2 x 8192 tokens, selective checkpoints"
        + (", compiled" if compiled else ""),
        published=rf"\| 8B \| {gpus} \| FSDP {gpus} \| 2 \| selective \| {extras} ?\| ([\d.]+) \|",
        make=lambda: sharded("8B", 2, "selective", compiled=compiled),
        device="96GiB",
        reserved=True,
        nproc=8,
        nnodes=gpus // 8,
        version="2.6",
    )


def _tune(name: str, published: str, device: str, assumed: str = "", *, size: str = "8B", **options: Any) -> Run:
    return Run(
        name=f"torchtune, {name}",
        published=published,
        make=lambda: tuned(size, **options),
        device=device,
        nproc=8 if options.get("sharded") else None,
        assumed=assumed,
    )


_ENDS = "embedding and output are sharded by themselves, as its recipe for all parameters has them"
RUNS = (
    *(_titan(gpus, compiled) for gpus in (8, 128) for compiled in (False, True)),
    _tune("8B on a 4090, all parameters", r"one 4090 ([\d.]+)", "rtx 4090", adapters=False, kept="none"),
    _tune(
        "8B on a 4090, all parameters",
        r"one 4090 ([\d.]+)",
        "rtx 4090",
        _WAITING,
        adapters=False,
        kept="none",
        waiting=True,
    ),
    _tune("8B on an A6000, all parameters", r"one\s+A6000 ([\d.]+)", "rtx a6000", _ALL, adapters=False, kept="all"),
    _tune("8B on a 4090, adapters", r"; LoRA ([\d.]+) \(4090\)", "rtx 4090", adapters=True, kept="none"),
    _tune(
        "8B on a 4090, adapters",
        r"; LoRA ([\d.]+) \(4090\)",
        "rtx 4090",
        _WAITING,
        adapters=True,
        kept="none",
        waiting=True,
    ),
    _tune("8B on an A6000, adapters", r"and ([\d.]+) \(A6000\)", "rtx a6000", _ALL, adapters=True, kept="all"),
    _tune(
        "8B on a 4090, adapters beside weights in four bits",
        r"QLoRA ([\d.]+)",
        "rtx 4090",
        adapters=True,
        kept="none",
        quantized=True,
    ),
    _tune(
        "70B on 8 A100, all parameters, offloaded",
        r"A100 ([\d.]+)",
        "nvidia-a100-80gb",
        size="70B",
        adapters=False,
        kept="none",
        sharded=True,
        offloaded=True,
        ends=True,
    ),
    *(
        _tune(
            "70B on 8 A100, adapters",
            r", LoRA ([\d.]+)\.",
            "nvidia-a100-80gb",
            _ENDS if ends else "",
            size="70B",
            adapters=True,
            kept="none",
            sharded=True,
            ends=ends,
        )
        for ends in (False, True)
    ),
)


def main() -> int:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with distributed/README.md")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--out", type=Path, help="where the table goes")
    given = parser.parse_args()
    published = (given.data / "distributed" / "README.md").read_text()
    text = table(published, [run for run in RUNS if given.only in run.name])
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def table(published: str, runs: list[Run]) -> str:
    """Each run's forecast and its distance from the published figure."""
    lines = [
        "# Forecasts beside published memory of trainings of Llama 3.1",
        "",
        "Peaks of one GPU that the torchtitan project (December 2024; reserved memory) and the torchtune project",
        "(September 2024; taken to be allocated memory) published, and forecasts of programs written anew, made by",
        "`python -m tests.bench.forecast_published_ranks`. Rows with float8 are left out. What a publication does not",
        "say is assumed as its recipe has it, and where that is far off another way is tried and named.",
        "",
        "| run | forecast GiB | distance | assumed |",
        "|---|---|---|---|",
    ]
    for run in runs:
        found = re.search(run.published, published)
        if found is None:
            raise SystemExit(f"no figure of {run.name}: nothing matches {run.published}")
        truth = float(found[1])
        answer = forecast_of(
            lambda _, run=run: run.make(),  # type: ignore[misc]
            device=run.device,
            nproc=run.nproc,
            nnodes=run.nnodes,
            torch_version=run.version,
            suggest=False,
        )
        peak = (answer.reserved_peak_bytes if run.reserved else answer.allocated_peak_bytes) / GIB
        notes = "; ".join((*([run.assumed] if run.assumed else []), *answer.notes))
        lines.append(f"| {run.name} | {peak:.2f} | {peak / truth - 1:+.1%} | {notes} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
