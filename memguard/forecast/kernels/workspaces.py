"""Workspaces of the matrix and convolution libraries inside the allocator, by torch version and compute capability.

From CublasHandlePool.cpp. Until 2.14 a cuBLAS workspace is taken once for each thread that multiplies (forward, and
the autograd engine's) and stream, and kept; from 2.15 each call takes one and gives it back. cuBLASLt has one of its
own until 2.11, and cuBLAS's beside it, since its handle is cuBLAS's own; from 2.12 it shares the one that cuBLAS keeps.
Until 2.6 its own is a tensor that each call makes and drops (``gemm_and_bias`` in CUDABlas.cpp), as published peaks
show. The environment's settings of them are followed.

From Conv_v8.cpp: with ``cudnn.benchmark`` off, PyTorch asks cuDNN's heuristics for a list of plans, best first, and
takes the first that runs. It allocates each plan's workspace, whatever its size, from its own allocator; where that
raises OutOfMemoryError it goes on to the next plan (``try_configs``), but the allocator has by then flushed its cache.
A plan that ran is kept for calls alike (``benchmark_cache``), and left again if its workspace fails later. With
``cudnn.benchmark`` on, plans above the largest free block are dropped, and a workspace for the largest of the rest,
halved until it can be had, is held while all are timed (``generate_and_filter_plans``). So a convolution's workspace
alone never runs out of memory. Attention has no such list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from memguard.forecast.trace import Event, Kind

CUBLAS_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
CUBLAS_BYTES_HOPPER = 4096 * 1024 * 8
CUBLASLT_BYTES = 1024 * 1024
ROCM_BYTES = 1 << 27
"""The most that hipBLASLt was reported to take."""
UNKNOWN = (Kind.CONVOLUTION, Kind.ATTENTION)
"""Calls of cuDNN, whose workspaces only a GPU knows; the event says how much they are at most."""
_OF_CUDNN = (*UNKNOWN, Kind.WORKSPACE, Kind.OTHER_WORKSPACE)
_OPTIONAL = -(1 << 40)
"""Numbers of workspaces without which a step goes on begin here and fall."""
_TRANSIENT_SINCE = (2, 15)
_LT_KEPT_SINCE = (2, 7)
"""Before, each call made cuBLASLt's workspace and gave it back."""
_SHARED_SINCE = (2, 12)
_BLACKWELL_SINCE = (2, 12)
"""Before, only Hopper got the large workspace."""
_CUBLAS_CONFIG = re.compile(r":(\d+):(\d+)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Bytes that each library takes."""

    cublas_bytes: int
    cublaslt_bytes: int = CUBLASLT_BYTES
    kept: bool = False
    """Kept by each thread though PyTorch would give them back: TORCH_CUBLAS_WORKSPACE_CACHE."""
    unknown_share: float | None = None
    """Share of the most that cuDNN calls may take, which only a GPU knows; None for what they probably take."""
    other_rules: bool = False
    """Convolutions take what the rules for GPUs of another kind say."""


def workspaces_for(
    compute_capability: tuple[int, int], torch_version: str, environment: Mapping[str, str] = os.environ
) -> Workspaces:
    """What a GPU's libraries take: cuBLAS 32 MiB from Hopper on and 8.125 MiB before; the environment can say other.

    Args:
        compute_capability: Of the GPU.
        torch_version: The PyTorch that runs the step.
        environment: Where PyTorch looks for ``CUBLAS_WORKSPACE_CONFIG`` and the like.
    """
    large = compute_capability >= (9, 0) and (
        compute_capability < (10, 0) or version_of(torch_version) >= _BLACKWELL_SINCE
    )
    wanted = _CUBLAS_CONFIG.findall(environment.get("CUBLAS_WORKSPACE_CONFIG", ""))
    lt = environment.get("CUBLASLT_WORKSPACE_SIZE", "")
    return Workspaces(
        cublas_bytes=sum(int(kib) * int(count) * 1024 for kib, count in wanted)
        or (CUBLAS_BYTES_HOPPER if large else CUBLAS_BYTES),
        cublaslt_bytes=int(lt) * 1024 if lt.isdecimal() else CUBLASLT_BYTES,
        kept=environment.get("TORCH_CUBLAS_WORKSPACE_CACHE", "0") not in ("", "0"),
    )


def version_of(text: str) -> tuple[int, int]:
    """Major and minor of a torch version like ``"2.13.0+cpu"``.

    Raises:
        ValueError: The text does not begin with two numbers.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a version of torch; write it like 2.11")
    return int(match[1]), int(match[2])


def expand(events: Iterable[Event], torch_version: str, workspaces: Workspaces) -> Iterator[Event]:
    """The events with every library call's workspace as an allocation; the new blocks have negative numbers.

    Those of convolutions are `is_optional`.
    """
    version = version_of(torch_version)
    transient = version >= _TRANSIENT_SINCE and not workspaces.kept
    block = 0
    kept: set[tuple[int, int, int]] = set()
    for event in events:
        if event.kind in _OF_CUDNN:
            taken: dict[int, int] = {event.kind: _of_cudnn(event, workspaces)}
        elif event.kind in (Kind.GEMM, Kind.EPILOGUE_GEMM):
            taken = _of_product(event.kind, version, workspaces)
        else:
            yield event
            continue
        for kind, nbytes in taken.items():
            own_lt = kind == Kind.EPILOGUE_GEMM and version < _LT_KEPT_SINCE
            returned = transient or event.kind in _OF_CUDNN or own_lt
            key = (kind, event.stream, event.block)
            if not nbytes or (not returned and key in kept):
                continue
            kept.add(key)
            block -= 1
            number = block + _OPTIONAL if event.kind in _OF_CUDNN and event.kind != Kind.ATTENTION else block
            yield Event(Kind.ALLOC, number, nbytes, event.stream, event.site)
            if returned:
                yield Event(Kind.FREE, number, 0, event.stream, event.site)


def is_optional(block: int) -> bool:
    """Whether a block is a convolution's workspace: where it does not fit, PyTorch takes cuDNN's next plan."""
    return block < _OPTIONAL


def _of_cudnn(event: Event, workspaces: Workspaces) -> int:
    """What a call takes by the chosen rules, or the share of what it may."""
    share = workspaces.unknown_share
    if event.kind in UNKNOWN:
        return int(event.nbytes * (share or 0.0))
    chosen = Kind.OTHER_WORKSPACE if workspaces.other_rules else Kind.WORKSPACE
    return event.nbytes if share is None and event.kind == chosen else 0


def _of_product(kind: int, version: tuple[int, int], workspaces: Workspaces) -> dict[int, int]:
    """The workspaces that a product needs, by the library whose they are, in the order in which they are taken."""
    if kind == Kind.GEMM or _SHARED_SINCE <= version < _TRANSIENT_SINCE:
        return {Kind.GEMM: workspaces.cublas_bytes}
    taken: dict[int, int] = {} if version >= _TRANSIENT_SINCE else {Kind.GEMM: workspaces.cublas_bytes}
    taken[Kind.EPILOGUE_GEMM] = workspaces.cublaslt_bytes
    return taken
