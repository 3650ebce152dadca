"""Which errors mean that memory ran out, on every kind of device and in every wrapper."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import torch

from memguard.evidence.oom.wording import Memory, memory_in

_ARGUMENTS = (ValueError, TypeError, LookupError, AttributeError, NameError, AssertionError, ArithmeticError)
"""Classes in which programs tell their users what to do; what they say of memory is advice, not an allocator's word."""
_MAKES_SHARED_MEMORY = ("multiprocessing/synchronize.py", "multiprocessing/heap.py", "multiprocessing/shared_memory.py")
_NO_ENGINE = re.compile(r"unable to find an engine to execute this computation|Unable to find a valid cuDNN algorithm")
"""cuDNN has tried its algorithms one after another: of each the workspace was refused, or it cannot do it at all."""
_DEPTH = 16


def is_oom(exception: BaseException) -> bool:
    """Whether an exception says, or was caused by one that says, that memory ran out: of the device or of the host.

    It knows ``torch.OutOfMemoryError``, ``MemoryError``, the allocators of CUDA, HIP, XPU, MPS, XLA and the CPU, the
    errors behind which cuBLAS, cuDNN, cuSOLVER, NCCL and other libraries hide it, a system call or a process that found
    no memory, a full ``/dev/shm``, and a DataLoader worker that the kernel killed. Causes, contexts and groups are
    searched too. A kernel that asks for more on-chip memory than the GPU has, or a full disk, is not out of memory.

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
    """Whether an out-of-memory error is about the host's memory, the shared memory included."""
    return _memory_of(exception) in (Memory.HOST, Memory.SHARED)


def _says_so(error: BaseException) -> bool:
    return _memory_of(error) is not None


def _memory_of(error: BaseException) -> Memory | None:
    """Which memory an error says ran out, whatever its causes say."""
    kind = type(error)
    if not issubclass(kind, Exception):
        return None
    memory = memory_in(_text(error), in_any_class=issubclass(kind, _ARGUMENTS))
    if memory is None and issubclass(kind, torch.OutOfMemoryError):
        return Memory.DEVICE
    if memory is None and issubclass(kind, MemoryError):
        return Memory.HOST
    if memory is None and issubclass(kind, OSError):
        return _memory_of_call(error)
    return memory


def _memory_of_call(error: BaseException) -> Memory | None:
    """Which memory a failed system call needed."""
    code = getattr(error, "errno", None)
    if code == errno.ENOMEM:
        return Memory.HOST
    if code == errno.ENOSPC and _raised_in(error).endswith(_MAKES_SHARED_MEMORY):
        return Memory.SHARED  # semaphores and shared arrays are files in /dev/shm, and the error names none
    return None


def _raised_in(error: BaseException) -> str:
    """The file of the innermost frame that an error passed."""
    trace = error.__traceback__
    if trace is None:
        return ""
    try:
        while trace.tb_next is not None:
            trace = trace.tb_next
        return trace.tb_frame.f_code.co_filename.replace("\\", "/")
    finally:
        del trace, error


def _text(error: BaseException) -> str:
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
