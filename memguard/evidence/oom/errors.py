"""Which errors say that memory ran out, the sentences of allocators and libraries that say so, and the sizes in them.

A sentence counts where it begins or ends as the library's own does: "CUDA out of memory. Tried to allocate" is one,
"lower the batch size to avoid CUDA out of memory errors" is a program's advice.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

import torch


class Memory(Enum):
    """Which memory ran out."""

    DEVICE = "device"
    HOST = "host"
    SHARED = "shared"


_BEGIN: Final = r"(?:^|(?<=[\n:;,>|'\"(\[\])])) ?"
"""Where a library's sentence begins: the text, a line, or what another text quotes behind a mark."""
_END: Final = (
    r"(?=[.:;,!)\]'\"\n]|\s*$| ?\(| ?\[| (?:at|in) (?:line|\S*[/\\.])| (?:while|when|occurred|trying|error)\b)"
)
_API: Final = (
    r"\b(?:cu(?:da|dnn|blas|solver|sparse|fft|rand|mem|tensor|tlass)\w*|hip\w*|roc\w*|miopen\w*|n?rccl\w*|nccl\w*|nvshmem\w*"
    r"|level.zero|sycl|xpu|musa\w*|acl\w*|npu|hpu|mlu|tpu|vulkan|opencl|metal|tensorrt|triton)\b"
)
_DEVICES: Final = r"(?:CUDA|HIP|ROCm|XPU|NPU|HPU|MUSA|MLU|MTIA|GCU|GPU|MPS backend|MPS)"
_SIZE: Final = r"\d[\d,]*(?:\.\d+)?\s?(?:bytes|[KMGTP]i?B|B)\b"

_DEVICE: Final = (
    rf"(?i:{_BEGIN}{_DEVICES}(?: is| ran)? out of memory{_END})",
    rf"(?i:{_API}[^\n]{{0,160}}?(?:[:('\"\]]|\berror\b|\bfail(?:ed|ure)\b)\s*(?:an )?out of memory{_END})",
    rf"(?i:{_BEGIN}Error out of memory{_END})",  # bitsandbytes
    r"(?i:\bCuda failure '?2\b)",
    # The names of the codes, by whichever library
    r"\b(?:cuda|hip|musa|mc)Error(?:MemoryAllocation|OutOfMemory)\b|\bkIOGPUCommandBufferCallbackErrorOutOfMemory\b",
    r"\b[A-Z]{2,}\w*_(?:OUT_OF_(?:DEVICE_)?MEMORY|OutOfMemory|(?<!HOST_)ALLOC(?:ATION)?_FAIL(?:ED|URE)|OUTOFMEMORY)\b"
    r"|\b[a-z]+StatusAllocFailed\b|\brocblas_status_memory_error\b|\bCUSPARSE_STATUS_INSUFFICIENT_RESOURCES\b",
    # A handle that cannot be made: cuBLAS and its sisters find no memory for it
    r"_STATUS_NOT_INITIALIZED[^\n]*\bcu\w+Create\b|\bcu\w+Create\b[^\n]*_STATUS_NOT_INIT",
    # Allocators that have sentences of their own
    r"(?i:failed to (?:cuda|hip) (?:host )?(?:[cm]|re)?alloc)",  # NCCL, RCCL
    rf"(?i:{_BEGIN}(?:CUDA|HIP|GPU|device)(?: memory)? allocation failed{_END})",
    rf"(?i:can(?:'t|not) allocate {_SIZE} on (?:device|GPU))",  # DALI
    r"out_of_memory: (?:CUDA|cuda|HIP|RMM)|RMM failure[^\n]*Maximum pool size exceeded",
    r"Invalid buffer size: \d",  # MPS, one tensor above what Metal gives
    r"Attempting to allocate \d+ bytes which is greater than the maximum allowed buffer size",  # MLX
    r"Failed to allocate memory for requested buffer of size \d",  # ONNX Runtime
    r"Error Memory Allocation failed|Not enough memory for workspace!",  # CUTLASS, cuDNN's search
    r"(?i:RESOURCE.EXHAUSTED[\s\S]{0,400}?(?:out of memory while trying to allocate"  # XLA
    r"|attempting to (?:reserve|allocate) \d|failed to allocate (?:request for )?\d"
    r"|memory space hbm|error allocating device buffer))",
    r"\bOOM when allocating tensor with shape\[",  # TensorFlow
)
_ANYWHERE: Final = (
    r"Allocation on device \S* ?would exceed allowed memory\. \(out of memory\)",  # cudaMallocAsync
    r"No available memory for the cache blocks",  # vLLM
    r"KV cache is needed, which is larger than the available",
    r"Free memory on device [^\n]{0,80} is less than desired GPU memory utilization",
    r"(?:Prefill|Decode) out of memory\. Try to|Not enough memory\. Please try to increase --mem-fraction-static",
)
"""Of the device's memory, and so plain that they count in every class; vLLM, for one, raises a `ValueError`."""
_HOST: Final = (
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)|\byou tried to (?:allocate|mmap) \d",
    rf"(?i:{_BEGIN}CPU out of memory{_END})|\bOUT_OF_HOST_MEMORY\b|_HOST_ALLOC(?:ATION)?_FAILED\b",
    rf"{_BEGIN}Cannot allocate memory{_END}",  # what the kernel says for ENOMEM
    rf"(?i:{_BEGIN}std::bad_alloc\b|{_BEGIN}bad allocation{_END})",
    rf"(?i:Unable to allocate {_SIZE} for an array with shape)",  # NumPy
    rf"(?i:{_BEGIN}(?:C10 )?Out of Memory\. Trying to allocate \d)",
    r"\bmalloc of (?:size )?\d+ (?:bytes )?failed|\bFailed to malloc \d+ bytes",  # Arrow, NCCL
    r"\(-4:Insufficient memory\)",  # OpenCV
    r"is killed by signal: Killed|killed due to the node running low on memory",  # the kernel's choice, and Ray's
    r"\[WinError (?:8|1455)\]|paging file is too small for this operation",
)
_SHARED: Final = (
    r"is killed by signal: Bus error|insufficient shared memory|workers are out of shared memory",
    r"unable to allocate shared memory\s?\(shm\) for file",
    r"unable to (?:write to|resize) file </?torch_[^>]*>(?! to the right size: Invalid)",
    r"/(?:dev|run)/shm\b[^\n]{0,200}?No space left on device|No space left on device[^\n]{0,80}?/(?:dev|run)/shm\b",
    r"</?torch_\d[^>]*>[^\n]{0,40}?(?:No space left on device|Cannot allocate memory)",
    r"[Ff]ailed to extend /dev/shm/\S+ to \d|Error while creating shared memory segment",  # NCCL
    r"Couldn't allocate shared memory segment",
)
_OF: Final = {
    Memory.SHARED: "|".join(_SHARED),
    Memory.DEVICE: "|".join((*_DEVICE, *_ANYWHERE)),
    Memory.HOST: "|".join(_HOST),
}
"""Not compiled here: most runs meet no such error, and `re` keeps what it has compiled."""
_IN_EVERY_CLASS: Final = "|".join(_ANYWHERE)
_TRACEBACK: Final = "Traceback (most recent call last)"

_REQUESTED: Final = (
    r"(?i:\b(?:tr(?:ied|ying) to (?:allocate|mmap)|calloc(?: async)?|host alloc|[Rr]equested(?: size)?\s*:|allocating"
    r"|attempting to (?:reserve|allocate)|(?:failed|unable|can(?:'t|not)) (?:to )?(?:allocate|malloc|mmap)"
    r"(?: request for)?|buffer size:|malloc of|size|/dev/shm/\S+ to))"
    r"\s*(\d[\d,]*(?:\.\d+)?)\s?(bytes|[KMGTP]i?B|B|[KMGTP])?\b"
    r"|(\d+(?:\.\d+)?) ([KMGT]iB) KV cache is needed"
)
_FACTORS: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def memory_in(text: str, *, in_any_class: bool = False) -> Memory | None:
    """Which memory a text says ran out.

    Args:
        text: What an error says; of a traceback within it, only what the errors in it say counts.
        in_any_class: Whether only sentences count that mean it in every class of exception.
    """
    if _TRACEBACK in text:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("  "))
    if in_any_class:
        return Memory.DEVICE if re.search(_IN_EVERY_CLASS, text) else None
    return next((memory for memory, sentences in _OF.items() if re.search(sentences, text)), None)


def requested_bytes(text: str) -> int | None:
    """The size that an error's text says was asked for."""
    found = re.search(_REQUESTED, text)
    if found is None:
        return None
    number, unit = (found[1], found[2]) if found[1] else (found[3], found[4])
    power = _FACTORS.get((unit or "bytes")[0].lower(), 0)
    return int(float(number.replace(",", "")) * 1024**power)


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
