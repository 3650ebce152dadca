"""The errors of an allocator that is out of memory, with the words and figures of ``torch.OutOfMemoryError``."""

from __future__ import annotations

from typing import Final, final

FRAGMENTATION_ADVICE: Final = (
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to "
    "avoid fragmentation.  See documentation for Memory Management  "
    "(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)
EXPANDABLE_ADVICE: Final = (
    "expandable_segments is enabled. If instead the process is running out of virtual address space (VSZ), expandable "
    "segments may be over-reserving VA (each segment reserves ~9/8 of device memory, times the number of streams); "
    "reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / expandable_segments_reserve_by_class."
)
"""What PyTorch says from 2.15 on where segments are expandable already."""


@final
class OutOfMemory(MemoryError):
    """The allocator found no memory; the text is that of ``torch.OutOfMemoryError``.

    Attributes:
        requested_bytes: What the program asked for.
        alloc_bytes: What the driver was asked for: the size of a new segment. The text names this one.
    """

    def __init__(self, text: str, *, requested_bytes: int, alloc_bytes: int) -> None:
        super().__init__(text)
        self.requested_bytes = requested_bytes
        self.alloc_bytes = alloc_bytes


def format_size(nbytes: int) -> str:
    """A size as PyTorch's allocator prints it (C++: ``format_size``): ``1024.00 MiB``, ``2.70 GiB``, ``0 bytes``."""
    if nbytes <= 1 << 10:
        return f"{nbytes} bytes"
    if nbytes <= 1 << 20:
        return f"{nbytes / (1 << 10):.2f} KiB"
    if nbytes <= 1 << 30:
        return f"{nbytes / (1 << 20):.2f} MiB"
    return f"{nbytes / (1 << 30):.2f} GiB"


def out_of_memory_text(
    *,
    alloc_bytes: int,
    device: int,
    total_bytes: int,
    free_bytes: int,
    process_bytes: int,
    others_bytes: int,
    allowed_bytes: int | None,
    allocated_bytes: int,
    reserved_bytes: int,
    private_free_bytes: int,
    advice: str,
) -> str:
    """The text of a failed allocation.

    Args:
        alloc_bytes: What the driver was asked for.
        device: Index of the device.
        total_bytes: Its capacity.
        free_bytes: What nobody holds.
        process_bytes: What this process holds, its context included.
        others_bytes: What other processes hold.
        allowed_bytes: The limit of this process, None without one.
        allocated_bytes: In blocks that tensors own.
        reserved_bytes: In segments.
        private_free_bytes: In free blocks of private pools; the text counts them as allocated.
        advice: What to do; see the functions below.
    """
    allocated = allocated_bytes + private_free_bytes
    parts = [
        f"CUDA out of memory. Tried to allocate {format_size(alloc_bytes)}. GPU {device} has a total capacity of "
        f"{format_size(total_bytes)} of which {format_size(free_bytes)} is free. ",
    ]
    if process_bytes:
        parts.append(f"Including non-PyTorch memory, this process has {format_size(process_bytes)} memory in use. ")
    if others_bytes:
        parts.append(f"Other processes have {format_size(others_bytes)} memory in use. ")
    if allowed_bytes is not None:
        parts.append(f"{format_size(allowed_bytes)} allowed; ")
    parts.append(f"Of the allocated memory {format_size(allocated)} is allocated by PyTorch, ")
    if private_free_bytes:
        parts.append(f"with {format_size(private_free_bytes)} allocated in private pools (e.g., CUDA Graphs), ")
    parts.append(f"and {format_size(reserved_bytes - allocated)} is reserved by PyTorch but unallocated. ")
    parts.append(advice)
    return "".join(parts)


def reserve_advice(reserve_bytes: int, alloc_bytes: int) -> str:
    """What to do where a block is larger than the addresses that an expandable segment may take.

    Args:
        reserve_bytes: Those addresses, before rounding to pages.
        alloc_bytes: What would have been asked of the driver.
    """
    return (
        f"This allocation exceeds the expandable-segment reserve of {format_size(reserve_bytes)} for this stream, and "
        "a single allocation cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF "
        "expandable_segments_reserve or expandable_segments_reserve_by_class (or unset it) so that a segment is at "
        f"least {format_size(alloc_bytes)}."
    )


def too_large_text() -> str:
    """The text for a request above an exbibyte, refused before anything is tried."""
    return "CUDA out of memory. Tried to allocate more than 1EB memory."


def rejected_text(requested_bytes: int) -> str:
    """The text for a request refused before the driver is asked (``throw_on_cudamalloc_oom``)."""
    return (
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed "
        f"per_process_memory_fraction limit. Requested size: {format_size(requested_bytes)}"
    )
