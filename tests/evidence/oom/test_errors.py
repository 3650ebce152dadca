"""What is an out-of-memory error and what is not, by the texts that PyTorch and its libraries write."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import torch

import memguard
from memguard.evidence.oom.errors import Memory, is_host_oom, memory_in, no_engine_in, oom_in, requested_bytes
from tests.evidence.oom.oom_texts import DEVICE, DEVICE_ASIDE, HOST, HOST_ASIDE, NO, NO_ASIDE, SHARED, SHARED_ASIDE

KNOWN = [
    *((text, Memory.DEVICE, nbytes) for text, nbytes in DEVICE),
    *((text, Memory.HOST, nbytes) for text, nbytes in HOST),
    *((text, Memory.SHARED, nbytes) for text, nbytes in SHARED),
]
ASIDE = [
    *((text, Memory.DEVICE) for text in DEVICE_ASIDE),
    *((text, Memory.HOST) for text in HOST_ASIDE),
    *((text, Memory.SHARED) for text in SHARED_ASIDE),
]
CUDA = DEVICE[0][0]


@pytest.mark.parametrize(("text", "memory", "nbytes"), KNOWN)
def test_every_disguise(text: str, memory: Memory, nbytes: int | None) -> None:
    """Every backend's and library's own words for it are known, which memory they mean, and the size in them."""
    assert memguard.is_oom(RuntimeError(text))
    assert memory_in(text) is memory
    assert requested_bytes(text) == nbytes


@pytest.mark.parametrize("text", NO + NO_ASIDE)
def test_other_errors(text: str) -> None:
    """Errors that merely fail near memory, and advice that speaks of it, are not taken for it."""
    assert not memguard.is_oom(RuntimeError(text))
    assert not memguard.is_oom(OSError(text))


def test_texts_that_the_patterns_were_not_written_for() -> None:
    """Nine in ten of the texts that were kept aside are known, and never as another kind of memory."""
    found = [memory_in(text) for text, _ in ASIDE]
    assert sum(memory is not None for memory in found) >= 0.9 * len(ASIDE)
    assert [text for (text, memory), said in zip(ASIDE, found, strict=True) if said not in (None, memory)] == []


def test_cudnn_without_an_algorithm_is_told_apart() -> None:
    """It says nothing of memory, and is of memory only where the allocator has just refused some."""
    error = RuntimeError("GET was unable to find an engine to execute this computation")
    assert not memguard.is_oom(error) and no_engine_in(error) is error
    outer = ValueError("batch 3")
    outer.__cause__ = error
    assert no_engine_in(outer) is error
    assert no_engine_in(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


def test_by_class() -> None:
    """PyTorch's class and Python's own count whatever their text; the text in a class for wrong arguments does not."""
    assert memguard.is_oom(torch.OutOfMemoryError("no words"))
    assert memguard.is_oom(MemoryError())
    assert not memguard.is_oom(ValueError(CUDA))


@pytest.mark.parametrize("kind", [Exception, RuntimeError, ValueError, type("LibraryError", (Exception,), {})])
def test_sentences_that_no_program_writes_itself(kind: type[Exception]) -> None:
    """The sentence of cudaMallocAsync, and what inference engines raise as ValueError, count in any class."""
    assert memguard.is_oom(
        kind("Allocation on device 0 would exceed allowed memory. (out of memory)\nRequested : 2 MiB")
    )
    assert memguard.is_oom(kind("No available memory for the cache blocks."))


def test_system_calls_without_memory() -> None:
    """A fork that finds no memory counts by its code; a full disk does not."""
    assert memguard.is_oom(OSError(errno.ENOMEM, "Nicht genügend Hauptspeicher verfügbar"))
    assert not memguard.is_oom(OSError(errno.ENOSPC, "No space left on device", "/data/last.ckpt"))
    assert memguard.is_oom(OSError(errno.ENOSPC, "No space left on device", "/dev/shm/psm_1"))


def test_a_semaphore_that_finds_no_shared_memory() -> None:
    """The error of a full /dev/shm names no file; where it was raised tells."""
    code = compile(
        "def make(): raise OSError(28, 'No space left on device')", "/lib/multiprocessing/synchronize.py", "exec"
    )
    names: dict[str, Any] = {}
    exec(code, names)
    with pytest.raises(OSError) as caught:
        names["make"]()
    assert memguard.is_oom(caught.value) and is_host_oom(caught.value)


def test_a_device_that_raises_the_class_of_the_host() -> None:
    """Libraries of the device raise MemoryError too; what it says tells whose memory it was."""
    assert not is_host_oom(MemoryError("std::bad_alloc: out_of_memory: CUDA error at: memory_resource.hpp:70"))
    assert is_host_oom(MemoryError())


def test_causes_and_contexts() -> None:
    """An error that was raised from one, or while one was handled, counts; not where the context was cut off."""
    inner = torch.OutOfMemoryError(CUDA)
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


def test_no_size_in_the_text() -> None:
    """A text without a size tells none."""
    assert requested_bytes("CUDNN_STATUS_ALLOC_FAILED") is None


@pytest.mark.parametrize("value", [3, None, "CUDA out of memory", RuntimeError])
def test_what_is_no_exception_says_nothing(value: object) -> None:
    """It is asked in handlers, where another error would hide the first."""
    assert memguard.is_oom(value) is False  # type: ignore[arg-type]
