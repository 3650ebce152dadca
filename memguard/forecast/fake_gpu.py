"""A GPU that user code believes in: the parts of torch.cuda that a training step asks, answered without one.

Changes the process for good, so it runs only in the child process of a trace. Checked with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, final

import torch


@final
class FakeStream:
    """A CUDA stream by number; 0 is the default stream."""

    _made = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        """`device` and `priority` are accepted and ignored."""
        FakeStream._made += 1
        self.number = FakeStream._made
        self.cuda_stream = self.stream_id = self.number
        self.device = torch.device("cuda", 0)
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs, so nothing is waited for."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs, so nothing is waited for."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event if event is not None else FakeEvent()

    def synchronize(self) -> None:
        """Nothing runs, so nothing is waited for."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False

    def __enter__(self) -> FakeStream:
        self._previous = _current.stream
        _current.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        _current.stream = self._previous


@final
class FakeEvent:
    """A CUDA event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """All options are accepted and ignored."""

    def record(self, stream: Any = None) -> None:
        """Happened."""

    def wait(self, stream: Any = None) -> None:
        """Happened."""

    def synchronize(self) -> None:
        """Happened."""

    def query(self) -> bool:
        """Happened."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """No time passes."""
        return 0.0


class _Current:
    def __init__(self) -> None:
        self.stream = FakeStream()
        self.stream.number = self.stream.cuda_stream = self.stream.stream_id = 0


_current = _Current()


def current_stream() -> int:
    """The number of the stream that user code has chosen."""
    return _current.stream.number


@final
class _DeviceContext:
    """torch.cuda.device and device_of: there is one device, so nothing changes."""

    def __init__(self, device: Any = None) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@contextlib.contextmanager
def _stream_context(stream: Any) -> Iterator[None]:
    if stream is None:
        yield
        return
    with stream:
        yield


def become_gpu(
    *,
    name: str,
    total_bytes: int,
    compute_capability: tuple[int, int],
    allocated_bytes: Callable[[], int],
    empty_cache: Callable[[], None],
) -> None:
    """Let `torch.cuda` in this process speak of one GPU with these properties."""
    properties = SimpleNamespace(
        name=name,
        major=compute_capability[0],
        minor=compute_capability[1],
        total_memory=total_bytes,
        multi_processor_count=108,
        warp_size=32,
        is_integrated=False,
        is_multi_gpu_board=False,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=166912,
        L2_cache_size=40 * 2**20,
        gcnArchName="",
        uuid="fake",
    )

    default_stream = _current.stream

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def allocated(*_: Any, **__: Any) -> int:
        return allocated_bytes()

    def statistics(*_: Any, **__: Any) -> dict[str, int]:
        return {"allocated_bytes.all.current": allocated_bytes(), "allocated_bytes.all.peak": allocated_bytes()}

    def host_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.empty(16, dtype=torch.uint8, device="cpu")

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": nothing,
        "_lazy_init": nothing,
        "_lazy_call": nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": nothing,
        "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: compute_capability,
        "get_device_properties": lambda *_: properties,
        "get_arch_list": lambda: [f"sm_{compute_capability[0]}{compute_capability[1]}"],
        "can_device_access_peer": lambda *_: False,
        "is_bf16_supported": lambda *_, **__: compute_capability >= (8, 0),
        "is_tf32_supported": lambda *_: compute_capability >= (8, 0),
        "synchronize": nothing,
        "ipc_collect": nothing,
        "current_stream": lambda *_: _current.stream,
        "default_stream": lambda *_: default_stream,
        "set_stream": lambda stream: setattr(_current, "stream", stream),
        "stream": _stream_context,
        "StreamContext": _stream_context,
        "Stream": FakeStream,
        "Event": FakeEvent,
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "_DeviceGuard": _DeviceContext,
        "is_current_stream_capturing": lambda: False,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": lambda: 0,
        "get_rng_state": host_state,
        "get_rng_state_all": lambda: [host_state()],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
    }
    memory: dict[str, Any] = {
        "empty_cache": lambda *_: empty_cache(),
        "memory_allocated": allocated,
        "max_memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_reserved": allocated,
        "memory_cached": allocated,
        "max_memory_cached": allocated,
        "memory_stats": statistics,
        "memory_stats_as_nested_dict": lambda *_: {},
        "memory_summary": lambda *_, **__: "",
        "mem_get_info": lambda *_: (max(total_bytes - allocated_bytes(), 0), total_bytes),
        "reset_peak_memory_stats": nothing,
        "reset_max_memory_allocated": nothing,
        "reset_max_memory_cached": nothing,
        "reset_accumulated_memory_stats": nothing,
        "set_per_process_memory_fraction": nothing,
    }
    for key, value in {**answers, **memory}.items():
        setattr(torch.cuda, key, value)
    for key, value in memory.items():
        setattr(torch.cuda.memory, key, value)
    for key in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed_all"):
        setattr(torch.cuda.random, key, answers[key])
    for key in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, key, nothing)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for key, value in {
            "is_available": lambda: True,
            "current_accelerator": lambda *_, **__: torch.device("cuda"),
            "device_count": lambda: 1,
            "current_device_index": lambda: 0,
            "current_stream": lambda *_: _current.stream,
            "set_stream": lambda stream: setattr(_current, "stream", stream),
            "synchronize": nothing,
        }.items():
            setattr(accelerator, key, value)
