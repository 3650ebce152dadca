"""A virtual GPU for one test: installed, taken away again, and read in MiB relative to what was there."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from memguard.backends.virtual import VirtualBackend
from memguard.text.units import MIB


class Gauge:
    """The device's figures in MiB, less what the process held before the test."""

    def __init__(self, backend: VirtualBackend) -> None:
        self.backend = backend
        self._base = backend.read().allocated_bytes or 0

    @property
    def allocated(self) -> float:
        return ((self.backend.read().allocated_bytes or 0) - self._base) / MIB

    @property
    def reserved(self) -> float:
        return (self.backend.read().reserved_bytes or 0) / MIB

    @property
    def nbytes(self) -> int:
        return (self.backend.read().allocated_bytes or 0) - self._base

    @property
    def peak(self) -> float:
        return ((self.backend.read().allocated_peak_bytes or 0) - self._base) / MIB


@contextmanager
def virtual_gpu(total_bytes: int = 1 << 30, conf: str = "") -> Iterator[Gauge]:
    gc.collect()
    backend = VirtualBackend(total_bytes, conf=conf)
    backend.install()
    try:
        yield Gauge(backend)
    finally:
        backend.remove()
