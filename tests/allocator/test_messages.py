"""Figures as PyTorch prints them, and the kinds of failure."""

from __future__ import annotations

import pytest

from memguard.allocator import CachingAllocator, OutOfMemory
from memguard.allocator.messages import format_size

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1025, "1.00 KiB"),
        (MIB, "1024.00 KiB"),
        (GIB, "1024.00 MiB"),
        (int(2.7 * GIB), "2.70 GiB"),
        (2000 * GIB, "2000.00 GiB"),
    ],
)
def test_sizes_read_as_in_pytorch(nbytes: int, text: str) -> None:
    """Two decimals, and a unit only once it is exceeded."""
    assert format_size(nbytes) == text


def test_more_than_an_exbibyte_is_refused_untried() -> None:
    """Such a request counts as no failure of the allocator."""
    allocator = CachingAllocator(GIB)
    with pytest.raises(OutOfMemory, match="more than 1EB memory"):
        allocator.malloc(1 << 60)
    assert allocator.stats()["num_ooms"] == 0


def test_preemptive_rejection_keeps_the_cache() -> None:
    """With throw_on_cudamalloc_oom the driver is not asked for what it cannot have, and nothing is released."""
    allocator = CachingAllocator(GIB, "throw_on_cudamalloc_oom:True")
    allocator.free(allocator.malloc(600 * MIB))
    with pytest.raises(OutOfMemory, match=r"preemptively rejected.*Requested size: 700.00 MiB"):
        allocator.malloc(700 * MIB)
    assert allocator.stats()["num_oom_rejections"] == 1
    assert allocator.reserved_bytes == 600 * MIB


def test_private_pools_are_counted_in_the_text() -> None:
    """Free blocks of private pools are named, and counted as allocated."""
    allocator = CachingAllocator(GIB)
    allocator.free(allocator.malloc(300 * MIB, pool=allocator.create_pool()))
    with pytest.raises(OutOfMemory) as info:
        allocator.malloc(900 * MIB)
    assert "300.00 MiB is allocated by PyTorch, with 300.00 MiB allocated in private pools" in str(info.value)
    assert "and 0 bytes is reserved" in str(info.value)


@pytest.mark.parametrize(
    ("conf", "version", "advice"),
    [
        ("", None, "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        ("expandable_segments:True", None, "expandable_segments is enabled."),
        ("expandable_segments:True", "2.14.1", "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
        (
            "expandable_segments:True,expandable_segments_reserve:0.25",
            None,
            "exceeds the expandable-segment reserve of 256.00 MiB",
        ),
    ],
)
def test_advice_depends_on_settings_and_version(conf: str, version: str | None, advice: str) -> None:
    """PyTorch does not advise what is on already, from 2.15 on."""
    with pytest.raises(OutOfMemory) as info:
        CachingAllocator(GIB, conf, version).malloc(2 * GIB)
    assert advice in str(info.value)
