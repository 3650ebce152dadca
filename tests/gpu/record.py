"""Records what training steps take on this machine's GPU: ``python -m tests.gpu.record FOLDER``.

The truth that forecasts are measured by: the steps of `tests/bench/forecast_models.py` in all of the allocator's
settings, the programs of `tests/bench/unseen`, and the models of `tests/bench/library_models.py`. Each runs in a
process of its own, many of them side by side, since sizes are all that is asked for. In FOLDER afterwards:
``card.json`` (GPU, driver, versions, what the context takes), and a file of lines for each family, as
`forecast_accuracy.py` and `forecast_unseen.py` read them.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import forecast_models
import library_models
from forecast_accuracy import grid
from unseen import catalogue

CASES = 190
CAPABILITY = "9.0"
"""Of the card that is recorded: the grid's other capabilities are left out. CUDA must not be asked before the forks."""
STEPS = 3
TOGETHER = {"cases": 12, "library": 10, "steps": 12, "operators": 6}
"""Processes side by side: those of a family fit a card of 80 GB, with 0.5 GiB of context each."""
OPERATORS_AT_A_TIME = 40
MOST_EVENTS = 400_000
Answer = dict[str, Any]


def card() -> Answer:
    """What a reader must know to judge the figures, and what a process takes beside its tensors."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    taken = {}

    def look(name: str) -> None:
        torch.cuda.synchronize()
        used = pynvml.nvmlDeviceGetMemoryInfo(handle).used - before
        taken[name] = {"used": used, "reserved": torch.cuda.memory_reserved()}

    torch.zeros(1, device="cuda")
    look("a tensor")
    square = torch.randn(2048, 2048, device="cuda", requires_grad=True)
    (square @ square).sum().backward()
    look("a product and its gradient")
    images = torch.randn(8, 3, 224, 224, device="cuda")
    torch.nn.Conv2d(3, 64, 7, device="cuda")(images).sum().backward()
    look("a convolution")
    heads = torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.backends.cuda.enable_cudnn_sdp(os.environ.get("MEMGUARD_GPU_REHEARSAL") is None)
    torch.nn.functional.scaled_dot_product_attention(heads, heads, heads).sum().backward()
    look("attention")
    torch.optim.AdamW([square], fused=True).step()
    torch.sort(torch.randn(1 << 20, device="cuda"))
    look("an optimizer and a sort")
    found = torch.cuda.get_device_properties(0)
    return {
        "gpu": found.name,
        "total_bytes": found.total_memory,
        "multiprocessors": found.multi_processor_count,
        "compute_capability": f"{found.major}.{found.minor}",
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
        "context": taken,
    }


def peaks(step: Callable[[], object]) -> Answer:
    """Peaks of three steps; with every allocation (positive) and free (negative) of the last."""
    for _ in range(STEPS - 1):
        step()
    record = torch.cuda.memory._record_memory_history
    record(max_entries=MOST_EVENTS, stacks="python", context=None, clear_history=True)
    step()
    stats = torch.cuda.memory_stats()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    record(enabled=None)
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "events": _sizes(trace),
    }


def _sizes(trace: list[dict[str, Any]]) -> list[int]:
    signs = {"alloc": 1, "free_requested": -1}
    return [signs[entry["action"]] * entry["size"] for entry in trace if entry["action"] in signs]


def _case(line: str) -> Answer:
    case = forecast_models.Case(**json.loads(line))
    model, _, step = forecast_models.build(case)
    return {"rule": forecast_models.rule_of_thumb(model), **peaks(step)}


def _step(name: str) -> Answer:
    torch.backends.cuda.enable_cudnn_sdp(False)  # as in the forecasts that are kept, which the null GPU judged first
    return peaks(catalogue.steps()[name]()[2])


def _library(name: str) -> Answer:
    return peaks(library_models.programs()[name]()[2])


def _operator(name: str) -> Answer:
    return {"events": peaks(catalogue.operators()[name]()[2])["events"]}


FAMILIES: dict[str, Callable[[str], Answer]] = {
    "cases": _case,
    "library": _library,
    "steps": _step,
    "operators": _operator,
}


def tasks(family: str, conf: str) -> list[str]:
    """The names of a family's programs, those that run under one setting of the allocator."""
    if family == "cases":
        cases = dict.fromkeys(replace(case, cc=CAPABILITY) for case in grid(CASES))
        return [json.dumps(asdict(case)) for case in cases if case.conf == conf]
    programs = {"library": library_models.programs, "steps": catalogue.steps, "operators": catalogue.operators}
    return list(programs[family]()) if not conf else []


def serve(family: str, names: list[str], parts: Path) -> None:
    """Runs programs in forked processes, so many at a time; each leaves a file with its line of JSON."""
    if family == "library":
        library_models.load()
    size = OPERATORS_AT_A_TIME if family == "operators" else 1
    groups = [names[begin : begin + size] for begin in range(0, len(names), size)]
    running = 0
    for group in groups:
        if running == TOGETHER[family]:
            os.wait()
            running -= 1
        if os.fork() == 0:
            _answer(family, group, parts / f"{os.getpid()}.jsonl")
            os._exit(0)
        running += 1
    for _ in range(running):
        os.wait()


def _answer(family: str, names: Iterable[str], part: Path) -> None:
    for name in names:
        try:
            answer = FAMILIES[family](name)
        except Exception as error:  # said, not hidden
            answer = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:300]}"}
        key = {"case": json.loads(name)} if family == "cases" else {"name": name}
        with part.open("a") as file:
            file.write(json.dumps({**key, **answer}) + "\n")


def record(folder: Path, families: list[str]) -> None:
    """Measures each family, one after the other, the settings of the allocator side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    for family in families:
        began = time.monotonic()
        confs = sorted({case.conf for case in grid(CASES)}) if family == "cases" else [""]
        answers = _measured(family, confs, folder / family)
        with gzip.open(folder / f"{family}.jsonl.gz", "wt") as file:
            file.writelines(f"{json.dumps(answer)}\n" for answer in answers)
        failed = [answer for answer in answers if "error" in answer]
        print(f"{family}: {len(answers)} measured, {len(failed)} failed, {time.monotonic() - began:.0f} s", flush=True)
        for answer in failed[:12]:
            print("  ", answer.get("name") or answer["case"], answer["error"], flush=True)


def _measured(family: str, confs: list[str], parts: Path) -> list[Answer]:
    """The answers, which lie in the folder of parts one by one as long as not all are there."""
    parts.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "tests.gpu.record", "--serve", str(parts), family]
    children = [
        subprocess.Popen([*command, conf], env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf}) for conf in confs
    ]
    for child in children:
        child.wait()
    lines = [line for part in sorted(parts.iterdir()) for line in part.read_text().splitlines()]
    shutil.rmtree(parts)
    return [json.loads(line) for line in lines]


def main(arguments: list[str]) -> int:
    """Serves one family under one setting, or records all of them."""
    if arguments[:1] == ["--serve"]:
        parts, family, conf = arguments[1:]
        TOGETHER["cases"] = 4 if conf else 8  # five settings run side by side
        serve(family, tasks(family, conf), Path(parts))
        return 0
    if not arguments:
        print("where to? python -m tests.gpu.record FOLDER [FAMILY ...]", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments[1:]:
        code = "import json; from tests.gpu.record import card; print(json.dumps(card(), indent=1))"
        told = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, check=True, text=True
        )
        (folder / "card.json").write_text(told.stdout)
        print(told.stdout)
    record(folder, arguments[1:] or list(FAMILIES))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
