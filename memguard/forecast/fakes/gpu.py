"""A GPU that user code believes in: the parts of torch.cuda that a training step asks, answered without one.

Changes the process for good, so it runs only in the child process of a trace. Checked with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from memguard.forecast.fakes.streams import DeviceContext, FakeEvent, FakeStream, StreamContext, current


def become_gpu(
    *,
    name: str,
    total_bytes: int,
    compute_capability: tuple[int, int],
    allocated_bytes: Callable[[], int],
    empty_cache: Callable[[], None],
    number: int = 0,
    count: int = 1,
) -> None:
    """Let `torch.cuda` in this process speak of `count` GPUs with these properties, of which it uses one."""
    FakeStream.device = torch.device("cuda", number)
    DeviceContext.idx = DeviceContext.prev_idx = number
    device = _device(_properties(name, total_bytes, compute_capability), number, count)
    random = _random(count)
    memory = _memory(total_bytes, allocated_bytes, empty_cache)
    known = _each_its_own({**device, **random, **memory})
    for key, value in known.items():
        setattr(torch.cuda, key, value)
    for key in memory:
        setattr(torch.cuda.memory, key, known[key])
    for key in ("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed_all"):
        setattr(torch.cuda.random, key, known[key])
    ranges = ("range_push", "range_pop", "range_start", "range_end", "mark")
    for key, value in _each_its_own(dict.fromkeys(ranges, _nothing)).items():
        setattr(torch.cuda.nvtx, key, value)
    accelerator: Any = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for key, value in _accelerator(number, count).items():
            setattr(accelerator, key, value)


def _each_its_own(functions: dict[str, Any]) -> dict[str, Any]:
    """The same without one function under two names: torch.compile has rules for functions, and one for each."""
    found: dict[str, Any] = {}
    for name, value in functions.items():
        if isinstance(value, FunctionType) and (value is _nothing or value in found.values()):
            value = FunctionType(value.__code__, value.__globals__, name, value.__defaults__, value.__closure__)
        found[name] = value
    return found


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _properties(name: str, total_bytes: int, compute_capability: tuple[int, int]) -> SimpleNamespace:
    return SimpleNamespace(
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


def _device(properties: SimpleNamespace, number: int, count: int) -> dict[str, Any]:
    """What torch.cuda says of the device and its streams."""
    capability = (properties.major, properties.minor)
    default_stream = current.stream
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "_lazy_init": _nothing,
        "_lazy_call": _nothing,
        "device_count": lambda: count,
        "current_device": lambda: number,
        "set_device": _nothing,
        "get_device_name": lambda *_: properties.name,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: properties,
        "get_arch_list": lambda: [f"sm_{capability[0]}{capability[1]}"],
        "can_device_access_peer": lambda *_: False,
        "is_bf16_supported": lambda including_emulation=True: including_emulation or capability >= (8, 0),
        "is_tf32_supported": lambda *_: capability >= (8, 0),
        "synchronize": _nothing,
        "ipc_collect": _nothing,
        "current_stream": lambda *_: current.stream,
        "default_stream": lambda *_: default_stream,
        "set_stream": lambda stream: setattr(current, "stream", stream),
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "Stream": FakeStream,
        "Event": FakeEvent,
        "device": DeviceContext,
        "device_of": DeviceContext,
        "_DeviceGuard": DeviceContext,
        "is_current_stream_capturing": lambda: False,
    }


class _Generator(torch.Generator):
    """A GPU's source of random numbers, which are never drawn: the compiler keeps its state for what it recomputes."""

    def __new__(cls, number: int) -> _Generator:
        made: _Generator = super().__new__(cls)
        made.number = number
        return made

    def __init__(self, number: int) -> None:
        self.number = number

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it would be."""
        return torch.device("cuda", self.number)

    def clone_state(self) -> _Generator:
        """Another one for the same GPU."""
        return _Generator(self.number)


def _random(count: int) -> dict[str, Any]:
    """What torch.cuda says of random numbers: none are drawn."""

    def host_state(*_: Any, **__: Any) -> torch.Tensor:
        return torch.empty(16, dtype=torch.uint8, device="cpu")

    nothings = ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all")
    return {
        **dict.fromkeys(nothings, _nothing),
        "initial_seed": lambda: 0,
        "get_rng_state": host_state,
        "get_rng_state_all": lambda: [host_state()],
        "default_generators": tuple(_Generator(number) for number in range(count)),
    }


def _memory(total_bytes: int, allocated_bytes: Callable[[], int], empty_cache: Callable[[], None]) -> dict[str, Any]:
    """What torch.cuda says of memory: what the trace has allocated so far."""

    def allocated(*_: Any, **__: Any) -> int:
        return allocated_bytes()

    def statistics(*_: Any, **__: Any) -> dict[str, int]:
        return {"allocated_bytes.all.current": allocated_bytes(), "allocated_bytes.all.peak": allocated_bytes()}

    amounts = ("allocated", "reserved", "cached")
    resets = ("peak_memory_stats", "max_memory_allocated", "max_memory_cached", "accumulated_memory_stats")
    return {
        **{f"{most}memory_{amount}": allocated for most in ("", "max_") for amount in amounts},
        **{f"reset_{what}": _nothing for what in resets},
        "empty_cache": lambda *_: empty_cache(),
        "memory_stats": statistics,
        "memory_stats_as_nested_dict": lambda *_: {},
        "memory_summary": lambda *_, **__: "",
        "mem_get_info": lambda *_: (max(total_bytes - allocated_bytes(), 0), total_bytes),
        "set_per_process_memory_fraction": _nothing,
    }


def _accelerator(number: int, count: int) -> dict[str, Any]:
    """What torch.accelerator says."""
    return {
        "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "device_count": lambda: count,
        "current_device_index": lambda: number,
        "current_stream": lambda *_: current.stream,
        "set_stream": lambda stream: setattr(current, "stream", stream),
        "synchronize": _nothing,
    }
