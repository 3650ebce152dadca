"""Demo recordings, written through RecordingWriter: a leak that ends out of memory, ranks, spikes, a long run.

python -m tests.tensorboard_plugin.make_logdir DIR
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from memguard.recording.format import COLUMNS
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Finding, Severity
from memguard.records.peak_contents import PeakContents, Row
from memguard.records.stats import STAGES, BatchRecord, Stage
from memguard.text.units import GIB, MIB

SEQUENCES = (256, 384, 512, 768, 1024)
SCRIPT = "/home/user/project/train.py"
START = 1_790_000_000.0


def session(rank: int = 0, world_size: int = 1, total: int = 24 * GIB) -> dict[str, Any]:
    """What a run says of itself."""
    return {
        "rank": rank,
        "world_size": world_size,
        "device": f"cuda:{rank}",
        "device_name": "NVIDIA RTX A5000",
        "device_total_bytes": total,
        "torch": "2.13.0",
    }


def make_session(rank: int = 0, world_size: int = 1) -> Iterator[tuple[Stage, int, int]]:
    """Stage, epoch and index of each batch: three epochs of training, validation and a checkpoint."""
    for epoch in range(3):
        for index in range(400):
            yield Stage.TRAIN, epoch, index
        for index in range(60):
            yield Stage.VALIDATION, epoch, index
        yield Stage.CHECKPOINT, epoch, 0


LEAK_BEGINS = 620
LEAK_BYTES = 24 * MIB


def make_leak(logdir: Path) -> RecordingWriter:
    """A run whose list of losses keeps graphs alive from batch 620 on, until it is out of memory."""
    writer = RecordingWriter(logdir, session())
    rng = random.Random(1)
    for number, length in enumerate(SEQUENCES):
        writer.line("shapes", {"id": number, "shapes": [["input", [8, length], "torch.int64"]]})
    static, steps, leaked = 5 * GIB + 312 * MIB, 0, 0
    reserved = 9 * GIB
    owners = {
        "parameters_bytes": 1331 * MIB,
        "buffers_bytes": 3 * MIB,
        "gradients_bytes": 1331 * MIB,
        "optimizer_bytes": 2662 * MIB,
    }
    for batch, (stage, epoch, index) in enumerate(make_session()):
        shape = min(4, int(rng.expovariate(0.9)))
        transient = int((1.6 + 1.9 * SEQUENCES[shape] / 512) * GIB * rng.uniform(0.985, 1.015)) // 512 * 512
        if stage is Stage.VALIDATION:
            transient = int(transient * 0.35) // 512 * 512
        if stage is Stage.CHECKPOINT:
            transient, shape = 380 * MIB, 0
        if stage is Stage.TRAIN and batch >= LEAK_BEGINS:
            leaked += LEAK_BYTES
        start = static + leaked
        peak = start + transient
        reserved = max(reserved, peak + 700 * MIB)
        reserved = min(reserved, 23 * GIB + 300 * MIB)
        steps += stage is Stage.TRAIN
        seconds = {Stage.TRAIN: 0.31, Stage.VALIDATION: 0.09, Stage.CHECKPOINT: 2.4}[stage]
        retries = 1 if peak > 22.0 * GIB else 0
        failed = peak > 23 * GIB
        writer.record(
            BatchRecord(
                batch=batch,
                stage=stage,
                epoch=epoch,
                index=index,
                optimizer_steps=steps,
                time=START + batch * 0.3,
                seconds=seconds,
                shapes=shape if stage is not Stage.CHECKPOINT else None,
                allocated_start_bytes=start,
                allocated_peak_bytes=min(peak, 23 * GIB),
                allocated_end_bytes=start + (LEAK_BYTES if batch >= LEAK_BEGINS and stage is Stage.TRAIN else 0),
                reserved_bytes=reserved,
                reserved_peak_bytes=reserved,
                active_peak_bytes=min(peak, 23 * GIB),
                inactive_split_bytes=300 * MIB,
                device_used_bytes=min(reserved + 620 * MIB, 24 * GIB),
                host_rss_bytes=6 * GIB + batch * 40_000,
                num_alloc_retries=retries,
                num_ooms=int(failed),
                num_device_alloc=0,
                num_device_free=0,
            )
        )
        if batch % 100 == 0 or failed:
            activations = peak - start
            writer.line(
                "owners",
                {
                    "batch": batch,
                    **owners,
                    "activations_bytes": activations,
                    "other_bytes": max(0, peak - activations - sum(owners.values())),
                },
            )
            writer.line("contents", contents(batch, stage, min(peak, 23 * GIB), leaked, owners).to_json())
        if batch in (LEAK_BEGINS + 12, 900, 1100):
            writer.line("finding", leak_finding(batch, leaked).to_json())
        if batch == LEAK_BEGINS + 12:
            writer.line("code", {"file": SCRIPT, "line": 41, "first": 39, "lines": CODE})
        if batch == 405:
            writer.line("finding", eval_finding(batch).to_json())
        if failed:
            writer.line("finding", leak_finding(batch, leaked).to_json())
            writer.line("finding", headroom_finding(batch).to_json())
            writer.line("oom", post_mortem(batch, leaked, transient, owners))
            make_snapshot(writer.path.parent / f"oom-rank00000-batch{batch}")
            writer.line("end", {"reason": "OutOfMemoryError", "overhead": {"seconds": 0.41, "share": 0.0012}})
            break
    return writer


MODEL = "/home/user/project/model.py"


def contents(batch: int, stage: Stage, peak: int, leaked: int, owners: dict[str, int]) -> PeakContents:
    """What filled the peak of a batch of twelve layers."""
    rows = [
        Row("parameters", "model.lm_head", None, None, None, "weight", (32000, 768), "float32", 94 * MIB),
        Row(
            "parameters",
            "model.layers",
            None,
            None,
            None,
            "weights",
            None,
            "float32",
            owners["parameters_bytes"] - 94 * MIB,
        ),
        Row("gradients", "AdamW group 0", None, None, None, "gradients", None, "float32", owners["gradients_bytes"]),
        Row("optimizer", "AdamW group 0", None, None, None, "exp_avg", None, "float32", owners["optimizer_bytes"] // 2),
        Row(
            "optimizer",
            "AdamW group 0",
            None,
            None,
            None,
            "exp_avg_sq",
            None,
            "float32",
            owners["optimizer_bytes"] // 2,
        ),
    ]
    if leaked:
        rows.append(Row("kept", "losses", SCRIPT, 41, "train", "what it keeps", None, "", leaked))
    left = peak - sum(row.nbytes for row in rows)
    part = left // 40
    for layer in range(12):
        rows.append(
            Row(
                "activations",
                f"model.layers.{layer}.mlp",
                MODEL,
                88,
                "forward",
                "GeluBackward0",
                (8, 512, 3072),
                "float32",
                2 * part,
            )
        )
        rows.append(
            Row(
                "activations",
                f"model.layers.{layer}.attention",
                MODEL,
                61,
                "attention",
                "SoftmaxBackward0",
                (8, 12, 512, 512),
                "float32",
                part,
            )
        )
    rows.append(
        Row(
            "temporaries",
            "model.lm_head",
            None,
            None,
            None,
            "temporaries of the backward",
            None,
            "",
            peak - sum(row.nbytes for row in rows),
        )
    )
    start = peak - left
    up = [("forward", f"model.layers.{layer}", start + 3 * part * (layer + 1)) for layer in range(12)]
    down = [("backward", module, nbytes) for _, module, nbytes in reversed(up)]
    return PeakContents(
        batch=batch,
        stage=stage.value,
        allocated_peak_bytes=peak,
        when="backward",
        module="model.lm_head",
        rows=rows,
        moments=[*up, *down],
    )


CODE = [
    "        loss = criterion(model(x), y)",
    "        loss.backward()",
    "        losses.append(loss)  # <b>for the plot</b>",
    "",
    "        optimizer.step()",
]


def leak_finding(batch: int, leaked: int) -> Finding:
    """The retained graph of the demo."""
    return Finding(
        code="MG101",
        name="retained-graph",
        severity=Severity.CRITICAL,
        message=f"`losses` in train.py line 41 keeps the graphs of {leaked // LEAK_BYTES} batches alive, 24.0 MiB "
        "each; at this pace the device is full about 740 batches after it began.",
        advice="Append `loss.item()` (or `loss.detach()`), not `loss`.",
        file=SCRIPT,
        line=41,
        function="train",
        holder="losses",
        stage=Stage.TRAIN,
        epoch=batch // 461,
        batch=batch,
        since=min(batch, LEAK_BEGINS),
        bytes=leaked,
        bytes_per_batch=float(LEAK_BYTES),
        count=max(1, leaked // LEAK_BYTES),
    )


def eval_finding(batch: int) -> Finding:
    """An evaluation that builds a graph."""
    return Finding(
        code="MG201",
        name="eval-graph",
        severity=Severity.WARNING,
        message="validate() in train.py line 63 built a graph nobody used, 410 MiB a batch; memguard does it for you.",
        advice="Put `@torch.no_grad()` above validate().",
        file=SCRIPT,
        line=63,
        function="validate",
        stage=Stage.VALIDATION,
        epoch=0,
        batch=batch,
        bytes=410 * MIB,
        count=60,
    )


def headroom_finding(batch: int) -> Finding:
    """A peak at the limit."""
    return Finding(
        code="MG504",
        name="low-headroom",
        severity=Severity.INFO,
        message="The peak of 23.0 GiB leaves 1.00 GiB of 24.0 GiB.",
        advice="Lower the batch size, or fix MG101 first.",
        stage=Stage.TRAIN,
        batch=batch,
    )


def post_mortem(batch: int, leaked: int, transient: int, owners: dict[str, int]) -> dict[str, Any]:
    """The post-mortem of the demo's end."""
    return {
        "id": f"oom-rank00000-batch{batch}",
        "batch": batch,
        "stage": "train",
        "message": "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which "
        "310.00 MiB is free. Including non-PyTorch memory, this process has 23.69 GiB memory in use.",
        "requested_bytes": 512 * MIB,
        "cause": "a leak: the graphs of earlier batches were never freed",
        "text": f"# Out of memory at batch {batch} (train)\n\n`model.py:88 forward()` asked for **512 MiB**. "
        f"Of 24.0 GiB, {leaked / GIB:.1f} GiB belong to graphs of earlier batches, kept by `losses` (train.py:41).\n\n"
        "- A batch of this run needs 9.3 GiB without the leak.\n- Fragmentation played no part.\n",
        "owners": {
            "parameters": owners["parameters_bytes"],
            "gradients": owners["gradients_bytes"],
            "optimizer_state": owners["optimizer_bytes"],
            "buffers": owners["buffers_bytes"],
            "activations": transient,
            "outputs": leaked,
            "other": 37 * MIB,
        },
        "site": {"file": "/home/user/project/model.py", "line": 88, "function": "forward"},
        "phase": "forward",
        "tensors": [
            {
                "name": "logits",
                "owner": "activations",
                "shape": [8, 1024, 32000],
                "dtype": "float32",
                "bytes": 1000 * MIB,
            },
            {
                "name": "losses[551].grad_fn",
                "owner": "outputs",
                "shape": [8, 1024, 768],
                "dtype": "float32",
                "bytes": 24 * MIB,
            },
        ],
        "lines": [[SCRIPT, 41, "train", leaked], ["/home/user/project/model.py", 88, "forward", 3 * GIB]],
        "advice": [
            {"text": "append `loss.item()` in train.py line 41 instead of `loss`.", "gain_bytes": leaked},
            {"text": "checkpoint `model.layers` (torch.utils.checkpoint).", "gain_bytes": 2 * GIB},
        ],
        "replay": [
            {"conf": "(as it ran)", "fits": False, "reserved_peak_bytes": 23 * GIB + 690 * MIB},
            {"conf": "expandable_segments:True", "fits": True, "reserved_peak_bytes": 23 * GIB + 120 * MIB},
            {"conf": "max_split_size_mb:128", "fits": False, "reserved_peak_bytes": 23 * GIB + 700 * MIB},
        ],
        "snapshot": "snapshot.pickle",
    }


def make_snapshot(folder: Path) -> None:
    """A snapshot beside the post-mortem: many leaked graphs, weights, activations, and gaps between them."""
    rng = random.Random(5)
    places = {
        "weights": ("model.py", 22, "__init__", (4 * MIB, 28 * MIB)),
        "graph": ("train.py", 41, "train", (1 * MIB, 6 * MIB)),
        "mlp": ("model.py", 88, "forward", (32 * MIB, 96 * MIB)),
        "attention": ("model.py", 61, "attention", (8 * MIB, 40 * MIB)),
    }
    segments = []
    for number in range(120):
        size = rng.choice((20 * MIB, 128 * MIB, 256 * MIB, 512 * MIB))
        kind = "graph" if number > 60 and rng.random() < 0.75 else rng.choice(list(places))
        blocks, left = [], size
        while left:
            file, line, name, (low, high) = places[kind if rng.random() < 0.9 else "mlp"]
            taken = min(left, rng.randrange(low, high) // 512 * 512)
            free = rng.random() < 0.16
            frames = [{"filename": f"/home/user/project/{file}", "line": line, "name": name}]
            blocks.append(
                {
                    "address": (number << 32) + size - left,
                    "size": taken,
                    "requested_size": 0 if free else taken - rng.randrange(0, 400),
                    "state": "inactive" if free else "active_allocated",
                    "frames": [] if free else frames,
                }
            )
            left -= taken
        segments.append(
            {
                "device": 0,
                "address": number << 32,
                "total_size": size,
                "allocated_size": sum(each["size"] for each in blocks if each["state"] != "inactive"),
                "stream": 0,
                "segment_type": "large",
                "is_expandable": False,
                "blocks": blocks,
            }
        )
    folder.mkdir(parents=True, exist_ok=True)
    snapshot = {"segments": segments, "device_traces": [history_of(segments)]}
    (folder / "snapshot.pickle").write_bytes(pickle.dumps(snapshot))


def history_of(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How the blocks of some segments came: one after the other, with a temporary of as much beside every tenth."""
    events: list[dict[str, Any]] = []

    def add(action: str, address: int, size: int, frames: list[Any]) -> None:
        time = {"time_us": 1000 * len(events), "stream": 0}
        events.append({"action": action, "addr": address, "size": size, "frames": frames, **time})

    for segment in segments:
        add("segment_alloc", segment["address"], segment["total_size"], [])
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                add("alloc", block["address"], block["requested_size"], block["frames"])
            elif len(events) % 10 == 0:
                frames = [{"filename": MODEL, "line": 70, "name": "softmax"}]
                for action in ("alloc", "free_requested", "free_completed"):
                    add(action, block["address"], block["size"], frames)
    return events


def make_ranks(logdir: Path, ranks: int = 4) -> None:
    """A run of several ranks, one of them with longer batches."""
    for rank in range(ranks):
        writer = RecordingWriter(logdir, session(rank, ranks, 80 * GIB))
        rng = random.Random(rank)
        for batch in range(900):
            peak = int((44 + 3 * rng.random() + (9 if rank == 2 and batch > 300 else 0)) * GIB)
            writer.record(
                BatchRecord(
                    batch=batch,
                    stage=Stage.TRAIN,
                    epoch=0,
                    index=batch,
                    optimizer_steps=batch,
                    time=START + batch,
                    seconds=1.0,
                    allocated_start_bytes=31 * GIB,
                    allocated_peak_bytes=peak,
                    allocated_end_bytes=31 * GIB,
                    reserved_bytes=62 * GIB,
                    reserved_peak_bytes=62 * GIB,
                )
            )
        if rank == 2:
            writer.line(
                "finding",
                Finding(
                    code="MG603",
                    name="rank-imbalance",
                    severity=Severity.WARNING,
                    message="Rank 2 peaks at 56.0 GiB, the others at 47.0 GiB: its batches are longer.",
                    advice="Balance the lengths over ranks in the sampler.",
                    batch=340,
                    rank=2,
                ).to_json(),
            )
        writer.close()


def spikes(count: int, batches: int) -> list[int]:
    """Where the one-batch spikes of a long run stand."""
    return sorted(random.Random(7).sample(range(100, batches), count))


def make_long(logdir: Path, batches: int, spike_count: int = 50) -> Path:
    """A long run with one-batch spikes; written in one piece, since a million records take a while one by one."""
    writer = RecordingWriter(logdir, session())
    rows = np.zeros(batches, dtype=[(name, kind) for name, kind in COLUMNS])
    number = np.arange(batches)
    noise = np.random.default_rng(3).integers(0, 600, batches) * MIB
    rows["batch"], rows["time"], rows["seconds"] = number, START + number * 0.1, 0.1
    rows["stage"] = np.where(number % 5000 >= 4800, STAGES.index(Stage.VALIDATION), STAGES.index(Stage.TRAIN))
    rows["epoch"], rows["index"], rows["optimizer_steps"] = number // 5000, number % 5000, number
    rows["shapes"] = np.iinfo("<i4").min
    rows["allocated_start_bytes"] = rows["allocated_end_bytes"] = 4 * GIB
    rows["allocated_peak_bytes"] = 9 * GIB + noise
    rows["allocated_peak_bytes"][spikes(spike_count, batches)] = 17 * GIB
    rows["reserved_bytes"] = rows["reserved_peak_bytes"] = 18 * GIB
    rows["active_peak_bytes"] = rows["allocated_peak_bytes"]
    rows["device_used_bytes"], rows["host_rss_bytes"] = 19 * GIB, 5 * GIB + number * 100
    with open(writer.path, "ab") as file:
        file.write(rows.tobytes())
    writer.close()
    return writer.path


def main(logdir: Path) -> None:
    """Writes the demo."""
    make_leak(logdir / "leak").close()
    make_ranks(logdir / "four-ranks")
    make_long(logdir / "long", 60_000, 12)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
