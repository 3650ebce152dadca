"""Which errors mean that memory ran out, on every kind of device, under whatever disguise."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

_TEXTS = re.compile(
    r"\b(CUDA|HIP|XPU|CPU|NPU|HPU|MUSA)\s+(driver\s+)?(error:\s*)?out of memory"
    r"|MPS backend out of memory"
    r"|Invalid buffer size: "  # MPS, one tensor above what Metal gives
    r"|DefaultCPUAllocator: (can't allocate memory|not enough memory)"
    r"|\bcudaErrorMemoryAllocation\b|\bhipErrorOutOfMemory\b|\bCUDA_ERROR_OUT_OF_MEMORY\b"
    r"|UR_RESULT_ERROR_OUT_OF_(DEVICE|HOST)_MEMORY|\bOUT_OF_DEVICE_MEMORY\b"
    r"|CUBLAS_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|CUSPARSE_STATUS_(ALLOC_FAILED|INSUFFICIENT_RESOURCES)|CUFFT_ALLOC_FAILED"
    r"|(CUDNN|MIOPEN|miopen)_?STATUS_?(ALLOC_FAILED|AllocFailed)"
    r"|NCCL[\s\S]*?(out of memory|Cuda failure '?2\b)"
    r"|Triton Error \[\w+\]: out of memory"
)
"""What the allocators and libraries write; "can't allocate" of files, ports and the like is not among it."""
_CUBLAS_CREATE = re.compile(r"CUBLAS_STATUS_NOT_INITIALIZED[^\n]*cublasCreate|cublasCreate[^\n]*CUBLAS_STATUS_NOT_INIT")
"""cuBLAS cannot make its handle, nearly always because it finds no memory for it."""
_NO_ENGINE = re.compile(r"unable to find an engine to execute this computation|Unable to find a valid cuDNN algorithm")
"""cuDNN has tried its algorithms one after another: of each the workspace was refused, or it cannot do it at all."""
_WORKER = re.compile(r"DataLoader worker \(pid[^:]*\) is killed by signal: (Killed|Bus error)")
_HOST = re.compile(r"DefaultCPUAllocator|DataLoader worker|CPU out of memory|OUT_OF_HOST_MEMORY")
_REQUESTED = re.compile(
    r"[Tt]ried to allocate (\d+(?:\.\d+)?) (bytes|[KMGT]iB|[KMGT]B)|you tried to allocate (\d+) bytes"
)
_FACTORS = {"bytes": 1, **{f"{unit}{tail}": 1024 ** (i + 1) for i, unit in enumerate("KMGT") for tail in ("iB", "B")}}
_DEPTH = 16


def is_oom(exception: BaseException) -> bool:
    """Whether an exception says, or was caused by one that says, that memory ran out: of the device or of the host.

    It knows ``torch.OutOfMemoryError``, the allocators of CUDA, HIP, XPU, MPS and the CPU, the errors behind which
    cuBLAS, cuDNN, cuSOLVER and NCCL hide it, ``MemoryError``, and a DataLoader worker that the kernel killed. Causes,
    contexts and groups are searched too.

    Args:
        exception: What was raised; it is not kept. Of what is no exception the answer is no.
    """
    return any(_says_so(error) for error in _chain(exception))


def oom_in(exception: BaseException) -> BaseException | None:
    """The error in a chain that says it: the exception itself where it does."""
    try:
        return next((error for error in _chain(exception) if _says_so(error)), None)
    finally:
        del exception


def no_engine_in(exception: BaseException) -> BaseException | None:
    """The error in a chain by which cuDNN found no algorithm: of memory, where the allocator has just refused some."""
    try:
        return next((error for error in _chain(exception) if _NO_ENGINE.search(_text(error))), None)
    finally:
        del exception


def is_host_oom(exception: BaseException) -> bool:
    """Whether an out-of-memory error is about the host's memory."""
    return issubclass(type(exception), MemoryError) or _HOST.search(str(exception)) is not None


def requested_bytes(text: str) -> int | None:
    """The size that an error's text says was asked for."""
    found = _REQUESTED.search(text)
    if found is None:
        return None
    if found[3]:
        return int(found[3])
    return int(float(found[1]) * _FACTORS[found[2]])


def _says_so(error: BaseException) -> bool:
    kind = type(error)
    if issubclass(kind, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = _text(error)
    return any(pattern.search(text) for pattern in (_TEXTS, _CUBLAS_CREATE, _WORKER))


def _text(error: BaseException) -> str:
    """What an error of the kinds that libraries raise says; of others nothing."""
    if not issubclass(type(error), (RuntimeError, OSError)):
        return ""
    try:
        return str(error)
    except Exception:  # an error of the user's own class that cannot even be printed
        return ""


def _chain(exception: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    queue: list[BaseException | None] = [exception]
    while queue and len(seen) < _DEPTH:
        error = queue.pop(0)
        if not isinstance(error, BaseException) or id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        queue.append(error.__cause__)
        if not error.__suppress_context__:
            queue.append(error.__context__)
        inner = getattr(error, "exceptions", None)
        if isinstance(inner, tuple):  # an exception group
            queue += [each for each in inner if isinstance(each, BaseException)]
