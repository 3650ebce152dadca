"""From the option ``device`` to a backend."""

from __future__ import annotations

import torch

from memguard.backends.auto import AutoBackend
from memguard.backends.host import HostBackend
from memguard.backends.interface import Backend
from memguard.backends.meters import MODES
from memguard.text.units import parse_bytes

VALID = "auto, cuda, cuda:N, xpu, xpu:N, mps, cpu, virtual:SIZE (as in virtual:24GiB)"


def choose_backend(device: str, *, peaks: str = "shared") -> Backend:
    """The backend for a device; touches none.

    Args:
        device: "auto", "cuda", "cuda:0", "xpu", "mps", "cpu" or "virtual:24GiB". "auto" is the accelerator that the
            program turns out to use; without a number the current device once the program has initialised it.
        peaks: How per-batch peaks are measured: "shared", "exclusive" or "off".

    Raises:
        ValueError: The device is none of these or not in this build of PyTorch, or `peaks` is none of its values.
    """
    if peaks not in MODES:
        raise ValueError(f"peaks must be one of {', '.join(MODES)}, got {peaks!r}")
    kind, colon, rest = device.partition(":")
    if device == "auto":
        return _auto(peaks)
    if device == "cpu":
        return HostBackend()
    if kind == "virtual" and colon:
        try:
            total_bytes = parse_bytes(rest)
        except ValueError as error:
            raise ValueError(f"device {device!r}: {error}") from None
        from memguard.backends.virtual import VirtualBackend

        backend: Backend = VirtualBackend(total_bytes)
        return backend
    if device in ("mps", "mps:0") or (kind in ("cuda", "xpu") and (rest.isdigit() or not colon)):
        _check_built(device, kind)
        return _accelerator(kind, int(rest) if rest else None, peaks)
    raise ValueError(f"device {device!r} is not known; the valid ones are {VALID}")


def _auto(peaks: str) -> Backend:
    """The accelerator in use, whichever of those that this PyTorch was built for that will be."""
    kinds = [kind for kind in ("cuda", "xpu", "mps") if _built(kind)]
    if not kinds:
        return HostBackend()

    def find() -> Backend | None:
        for kind in kinds:
            if _in_use(kind):
                return _accelerator(kind, None, peaks)
        return None

    return AutoBackend(find)


def _accelerator(kind: str, index: int | None, peaks: str) -> Backend:
    if kind == "cuda":
        from memguard.backends.cuda import CudaBackend

        return CudaBackend(index, peaks=peaks)
    from memguard.backends.accelerator import MpsBackend, XpuBackend

    return XpuBackend(index, peaks=peaks) if kind == "xpu" else MpsBackend()


def _built(kind: str) -> bool:
    if kind == "cuda":
        return bool(torch.backends.cuda.is_built())
    if kind == "xpu":
        return hasattr(torch._C, "_xpu_memoryStats")
    return bool(torch.backends.mps.is_built())


def _in_use(kind: str) -> bool:
    if kind == "cuda":
        return bool(torch.cuda.is_initialized())
    if kind == "xpu":
        return bool(torch.xpu.is_initialized())
    return bool(torch.backends.mps.is_available() and torch.mps.current_allocated_memory() > 0)


def _check_built(device: str, kind: str) -> None:
    if not _built(kind):
        others = [other for other in ("cuda", "xpu", "mps") if _built(other)]
        raise ValueError(
            f"device {device!r} is not in this build of PyTorch ({torch.__version__}); it has "
            f"{', '.join([*others, 'cpu'])}, and virtual:SIZE works everywhere"
        )
