"""What others do in each batch, written from their documentation, to be measured beside memguard.

Where this machine has no NVIDIA driver, a stand-in for NVML takes `FAKE_NVML_SECONDS` of processor time for each call.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning.pytorch import Callback
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

FAKE_NVML_SECONDS = 20e-6
"""A guess at the low end: on real drivers a call takes from ten microseconds to milliseconds."""
MIB = 1 << 20
COMPOSER_KEYS = {
    "allocated_bytes.all.current": "current_allocated_mem",
    "active_bytes.all.current": "current_active_mem",
    "inactive_split_bytes.all.current": "current_inactive_mem",
    "reserved_bytes.all.current": "current_reserved_mem",
    "allocated_bytes.all.peak": "peak_allocated_mem",
    "active_bytes.all.peak": "peak_active_mem",
    "inactive_split_bytes.all.peak": "peak_inactive_mem",
    "reserved_bytes.all.peak": "peak_reserved_mem",
    "num_alloc_retries": "alloc_retries",
}


class StatsEachBatch(Callback):
    """The least that a hand-written callback does: the flat statistics at each batch's end, and a reset."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        torch.cuda.memory_stats()
        torch.cuda.reset_peak_memory_stats()


class OnlyTorch(Callback):
    """What torch itself takes to tell a batch's peak: its nested statistics and a reset of the peaks."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        torch._C._cuda_memoryStats(0)
        torch._C._cuda_resetPeakMemoryStats(0)


class LeastRecord(Callback):
    """The least that can be called a record of every batch: four numbers, the time, the step and the input's shape.

    It looks after nothing else: no stage, no other reader of the peaks, no evaluation, no rule, no file, no failure.
    """

    on_train_batch_start = on_before_zero_grad = on_before_backward = None  # type: ignore[assignment]
    on_after_backward = on_before_optimizer_step = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._kept: list[tuple[object, ...]] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        stats = torch._C._cuda_memoryStats(0) if torch.cuda.is_initialized() else None
        numbers: tuple[int, ...] = ()
        if stats is not None:
            torch._C._cuda_resetPeakMemoryStats(0)
            allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
            numbers = allocated["current"], allocated["peak"], reserved["current"], stats["num_alloc_retries"]
        self._kept.append((*numbers, time.time(), batch_idx, batch.shape))
        if len(self._kept) == 64:
            self._kept.clear()


class LeastHooks:
    """The least that watches a plain loop: two hooks on each of its models, two on its optimizers.

    Args:
        models: The modules that the loop calls.
        records: Whether the last of them keeps a record of each batch, as `LeastRecord` does; else all do nothing.
    """

    def __init__(self, *models: nn.Module, records: bool) -> None:
        self._kept: list[tuple[object, ...]] = []
        self._handles = [
            *(model.register_forward_pre_hook(_nothing, prepend=True, with_kwargs=True) for model in models),
            *(model.register_forward_hook(_nothing, always_call=True) for model in models),
            register_optimizer_step_pre_hook(_nothing),
            register_optimizer_step_post_hook(self._record if records else _nothing),
        ]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _record(self, optimizer: object, args: object, kwargs: object) -> None:
        numbers: tuple[int, ...] = ()
        if torch.cuda.is_initialized():
            stats = torch._C._cuda_memoryStats(0)
            torch._C._cuda_resetPeakMemoryStats(0)
            allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
            numbers = allocated["current"], allocated["peak"], reserved["current"], stats["num_alloc_retries"]
        self._kept.append((*numbers, time.time()))
        if len(self._kept) == 64:
            self._kept.clear()


def _nothing(*args: object) -> None:
    pass


class ComposerReads(Callback):
    """Composer's MemoryMonitor: nine statistics of each batch, in gigabytes of five digits, to the logger."""

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        stats = torch.cuda.memory_stats()
        told = {}
        for key, name in COMPOSER_KEYS.items():
            value = stats[key]
            told[f"memory/{name}"] = value if name == "alloc_retries" else float(f"{value / 1e9:.5g}")
        trainer.logger.log_metrics(told, step=trainer.global_step)


class NvmlEachBatch(Callback):
    """nvitop's published callback: NVML's memory and utilisation at each batch's start and end, to the logger."""

    def on_fit_start(self, *args: Any) -> None:
        self._ask, self._device = driver()

    def _look(self, trainer: Any, when: str) -> None:
        memory = self._ask.nvmlDeviceGetMemoryInfo(self._device)
        rates = self._ask.nvmlDeviceGetUtilizationRates(self._device)
        told = {
            "memory.used (MiB)": memory.used / MIB,
            "memory.free (MiB)": memory.free / MIB,
            "utilization.gpu (%)": rates.gpu,
            "utilization.memory (%)": rates.memory,
        }
        trainer.logger.log_metrics(
            {f"gpu_id: 0/{when}/{name}": v for name, v in told.items()}, step=trainer.global_step
        )

    def on_train_batch_start(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._look(trainer, "start")

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self._look(trainer, "end")


def driver() -> tuple[Any, Any]:
    """NVML and the handle of the first device; the stand-in where there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetUtilizationRates(device)
    except pynvml.NVMLError:
        return FakeNvml(), None
    return pynvml, device


class FakeNvml:
    """A driver that answers after a fixed time."""

    used, free, gpu, memory = 8 << 30, 16 << 30, 97, 41

    def nvmlDeviceGetMemoryInfo(self, device: None) -> FakeNvml:
        return _after_a_while(self)

    def nvmlDeviceGetUtilizationRates(self, device: None) -> FakeNvml:
        return _after_a_while(self)


def _after_a_while(answer: FakeNvml) -> FakeNvml:
    until = time.perf_counter() + FAKE_NVML_SECONDS
    while time.perf_counter() < until:
        pass
    return answer
