"""A directory of runs, snapshots and a forecast whose every figure is known."""

from __future__ import annotations

import gzip
import json
import shutil
import textwrap
from pathlib import Path

from memguard.cli import main
from memguard.forecast.from_file import forecast_target
from memguard.integrations.script import run_script
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, Stage
from tests.allocator.recorded import COMMITTED, SHARED

MIB = 1 << 20

LEAK = """\
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
history = []
for batch in range(30):
    loss = model(torch.randn(128, 64)).square().mean()
    history.append(loss)
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
"""
CLEAN = LEAK.replace("history.append(loss)", "history.append(loss.item())").replace("retain_graph=True", "")
TOO_LARGE = """\
import torch
model = torch.nn.Linear(64, 64)
for batch in range(30):
    size = 1 << 20 if batch == 8 else 128
    model(torch.randn(size, 64)).sum().backward()
"""
STEP = """\
import torch
def make(batch=16):
    model = torch.nn.Linear(1024, 1024)
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        model(torch.randn(batch, 1024)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, step
"""


def make_directory(root: Path) -> None:
    """Fills a directory: programs that were run under guard, ranks and lengths written down, snapshots, a forecast."""
    for name, code in (("leak", LEAK), ("clean", CLEAN), ("too_large", TOO_LARGE)):
        script = root / f"{name}.py"
        script.write_text(code)
        options = {"device": "virtual:64MiB", "logdir": str(root / "runs" / name), "validation": "warn"}
        run_script(str(script), [], options, module=False)
    _write_ranks(root / "runs" / "ranks")
    _write_lengths(root / "runs" / "lengths")
    (root / "snapshots").mkdir()
    for path in COMMITTED:
        (root / "snapshots" / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for path in SHARED:
        shutil.copyfile(path, root / "snapshots" / path.name)
    (root / "step.py").write_text(textwrap.dedent(STEP))
    told = forecast_target(f"{root}/step.py:make", batch=16, device="24GiB")
    (root / "forecast.json").write_text(json.dumps(told.to_json(), default=str))


def _write_ranks(logdir: Path) -> None:
    """Four ranks, 20 batches each: rank 2 peaks at 48 MiB, the others at 16, and it alone has a leak."""
    for rank in range(4):
        writer = RecordingWriter(
            logdir,
            {"rank": rank, "world_size": 4, "device": "cuda:0", "device_name": "Toy", "device_total_bytes": 64 * MIB,
             "node": str(rank // 2)},
        )  # fmt: skip
        for batch in range(20):
            writer.record(_record(batch, (48 if rank == 2 else 16) * MIB))
        if rank == 2:
            leak = Finding(
                code="MG101",
                name="retained-graph",
                severity=Severity.WARNING,
                message="`losses` keeps the graphs of earlier batches.",
                advice="append loss.item() instead",
                file="/code/train.py",
                line=48,
                holder="losses",
                stage=Stage.TRAIN,
                batch=9,
                bytes=32 * MIB,
                rank=2,
            )
            writer.line("finding", leak.to_json())
        ends = {0: "finished", 1: "finished", 2: "finished"}.get(rank)
        if ends is not None:
            writer.line("end", {"reason": ends, "batches": 20, "overhead": {"seconds": 0.1, "share": 0.01}})
        writer.close()


def _write_lengths(logdir: Path) -> None:
    """One rank, 100 batches, one MiB for each of the input's length, which is 40 in batch 77; validation after it."""
    writer = RecordingWriter(logdir, {"rank": 0, "world_size": 1, "device": "cuda:0", "device_total_bytes": 80 * MIB})
    for number, length in enumerate((8, 16, 40)):
        writer.line("shapes", {"id": number, "shapes": [["tokens", [4, length], "int64"]]})
    for batch in range(100):
        shape = 2 if batch == 77 else batch % 2
        writer.record(_record(batch, (8, 16, 40)[shape] * MIB, shape))
    for batch in range(100, 110):
        writer.record(_record(batch, 4 * MIB, stage=Stage.VALIDATION))
    writer.line("owners", {"batch": 77, "owners": {"parameters": 2 * MIB, "activations": 38 * MIB}})
    writer.line("end", {"reason": "finished", "batches": 110, "overhead": {"seconds": 0.1, "share": 0.01}})
    writer.close()


def _record(batch: int, peak: int, shapes: int | None = None, stage: Stage = Stage.TRAIN) -> BatchRecord:
    return BatchRecord(
        batch=batch,
        stage=stage,
        time=1_790_000_000.0 + batch,
        seconds=0.5,
        shapes=shapes,
        index=batch,
        optimizer_steps=batch + 1,
        allocated_start_bytes=MIB,
        allocated_peak_bytes=peak,
        allocated_end_bytes=MIB,
        reserved_bytes=peak + 2 * MIB,
        reserved_peak_bytes=peak + 2 * MIB,
        num_alloc_retries=0,
        num_ooms=0,
    )


if __name__ == "__main__":
    import sys

    make_directory(Path(sys.argv[1]))
    main(["report", f"{sys.argv[1]}/runs"])
