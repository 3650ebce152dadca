"""Workspaces of the matrix and convolution libraries inside the allocator, by torch version and compute capability.

From CublasHandlePool.cpp. Until 2.14 a cuBLAS workspace is taken once for each thread that multiplies (forward, and
the autograd engine's) and stream, and kept; from 2.15 each call takes one and gives it back. cuBLASLt has one of its
own in 2.9.1; in 2.12.1 it shares the one that cuBLAS keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import final

from memguard.forecast.trace import Event, Kind

CUBLAS_BYTES = 4096 * 1024 * 2 + 16 * 1024 * 8
CUBLAS_BYTES_HOPPER = 4096 * 1024 * 8
CUBLASLT_BYTES = 1024 * 1024
_TRANSIENT_SINCE = (2, 15)
_SHARED_SINCE = (2, 12)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """Bytes that each library takes."""

    cublas_bytes: int
    cublaslt_bytes: int = CUBLASLT_BYTES
    convolution_share: float = 0.0
    """Share of the bytes that a convolution reads and writes which its algorithm takes beside; only a GPU knows it."""


def workspaces_for(compute_capability: tuple[int, int]) -> Workspaces:
    """The defaults of a GPU: cuBLAS takes 32 MiB from Hopper on, 8.125 MiB before."""
    return Workspaces(cublas_bytes=CUBLAS_BYTES_HOPPER if compute_capability >= (9, 0) else CUBLAS_BYTES)


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
    """The events with every library call's workspace as an allocation; the new blocks have negative numbers."""
    version = version_of(torch_version)
    transient = version >= _TRANSIENT_SINCE
    shared = _SHARED_SINCE <= version < _TRANSIENT_SINCE
    block = 0
    kept: set[tuple[int, int, int]] = set()
    for event in events:
        if event.kind == Kind.GEMM or (shared and event.kind == Kind.EPILOGUE_GEMM):
            nbytes = workspaces.cublas_bytes
        elif event.kind == Kind.EPILOGUE_GEMM:
            nbytes = workspaces.cublaslt_bytes
        elif event.kind == Kind.CONVOLUTION:
            nbytes = int(event.nbytes * workspaces.convolution_share)
        else:
            yield event
            continue
        returned = transient or event.kind == Kind.CONVOLUTION
        if not returned:
            key = (Kind.GEMM if shared else event.kind, event.stream, event.block)
            if key in kept:
                continue
            kept.add(key)
        if nbytes:
            block -= 1
            yield Event(Kind.ALLOC, block, nbytes, event.stream, event.site)
            if returned:
                yield Event(Kind.FREE, block, 0, event.stream, event.site)
