"""What is an out-of-memory error and what is not, by the texts that PyTorch and its libraries write."""

from __future__ import annotations

import pytest
import torch

import memguard
from memguard.probes.oom.errors import no_engine_in, oom_in, requested_bytes

YES = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported",
    "HIP out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.98 GiB total capacity)",
    "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.91 GiB.",
    "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.07 GB, max allowed: 9.07 GB).",
    "Invalid buffer size: 32.00 GiB",
    "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4096 bytes. Error code 12 (Cannot allocate memory)",
    "[enforce fail at alloc_cpu.cpp:80] . DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes.",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.21.5\nLast error:\nCuda failure 2",
    "NCCL WARN Cuda failure 'out of memory'",
    "Triton Error [CUDA]: out of memory",
    "DataLoader worker (pid 4242) is killed by signal: Killed. ",
    "DataLoader worker (pid(s) 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
    "shared memory.",
]
NO = [
    "CUDA error: device-side assert triggered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "mat1 and mat2 shapes cannot be multiplied (4x8 and 16x8)",
    "DataLoader worker (pid 4242) is killed by signal: Terminated. ",
    "the model is out of memory slots for this key",
    "Cannot assign requested address",
]


@pytest.mark.parametrize("text", YES)
def test_every_disguise(text: str) -> None:
    """Every backend's and library's own words for it are known."""
    assert memguard.is_oom(RuntimeError(text))


@pytest.mark.parametrize("text", NO)
def test_other_errors(text: str) -> None:
    """Errors that merely fail near memory are not taken for it."""
    assert not memguard.is_oom(RuntimeError(text))


def test_cudnn_without_an_algorithm_is_told_apart() -> None:
    """It says nothing of memory, and is of memory only where the allocator has just refused some."""
    error = RuntimeError("GET was unable to find an engine to execute this computation")
    assert not memguard.is_oom(error) and no_engine_in(error) is error
    outer = ValueError("batch 3")
    outer.__cause__ = error
    assert no_engine_in(outer) is error
    assert no_engine_in(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


def test_by_class() -> None:
    """PyTorch's class and Python's own count whatever their text; the text in another class does not."""
    assert memguard.is_oom(torch.OutOfMemoryError("no words"))
    assert memguard.is_oom(MemoryError())
    assert not memguard.is_oom(ValueError(YES[0]))


def test_causes_and_contexts() -> None:
    """An error that was raised from one, or while one was handled, counts; not where the context was cut off."""
    inner = torch.OutOfMemoryError(YES[0])
    try:
        raise ValueError("the step failed") from inner
    except ValueError as error:
        assert memguard.is_oom(error)
        assert oom_in(error) is inner
    cut = ValueError("something else")
    cut.__context__, cut.__suppress_context__ = inner, True
    assert not memguard.is_oom(cut)


def test_a_chain_that_bites_its_tail() -> None:
    """A chain of causes in a circle comes to an end."""
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert not memguard.is_oom(one)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [(YES[0], 2 << 30), (YES[2], 20 << 20), (YES[6], 4096), ("CUDA out of memory. Tried to allocate 512 bytes.", 512)],
)
def test_the_size_in_the_text(text: str, nbytes: int) -> None:
    """The size that was asked for is read from the text."""
    assert requested_bytes(text) == nbytes


def test_no_size_in_the_text() -> None:
    """A text without a size tells none."""
    assert requested_bytes("CUDNN_STATUS_ALLOC_FAILED") is None


@pytest.mark.parametrize("value", [3, None, "CUDA out of memory", RuntimeError])
def test_what_is_no_exception_says_nothing(value: object) -> None:
    """It is asked in handlers, where another error would hide the first."""
    assert memguard.is_oom(value) is False  # type: ignore[arg-type]
