"""The allocator's state, out in PyTorch's format and in again."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from memguard.allocator import CachingAllocator, RisingDriver
from tests.allocator.operations import CONFIGS, Run
from tests.allocator.simulated import Simulated

MIB = 1 << 20
GIB = 1 << 30


def _worked(config: str, mode: str) -> CachingAllocator:
    run = Run(config, 3, mode, seed=5, count=400)
    simulated = Simulated(run)
    for operation in run.operations():
        simulated.apply(operation)
    return simulated.allocator


def _shape(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                block["requested_size"] = 0  # what a free block once served is not part of the state
    return segments


@pytest.mark.parametrize("mode", ["plain", "pending", "pools"])
@pytest.mark.parametrize("config", CONFIGS)
def test_state_survives_a_round_trip(config: str, mode: str) -> None:
    """An allocator made from a snapshot has the same segments, blocks and current figures."""
    allocator = _worked(config, mode)
    segments = allocator.snapshot()["segments"]
    again = CachingAllocator.from_segments(segments, 3 * GIB, CONFIGS[config], pending=True)
    assert _shape(again.snapshot()["segments"]) == _shape(segments)
    before, after = allocator.stats(), again.stats()
    keys = [key for key in after if key.endswith(".current") and "by_private_pools" not in key]
    assert len(keys) > 28
    assert {key: after[key] for key in keys} == {key: before[key] for key in keys}
    assert all(after[key.replace(".current", ".peak")] == after[key] for key in keys)
    assert after["num_device_alloc"] == 0


@pytest.mark.parametrize("config", ["default", "expandable", "max_split", "expandable_max_split"])
def test_restored_allocator_goes_on_as_the_first(config: str) -> None:
    """The same requests get the same addresses from both, for as long as no new segment is needed."""
    first = _worked(config, "plain")
    second = CachingAllocator.from_segments(first.snapshot()["segments"], 3 * GIB, CONFIGS[config])
    rng = random.Random(3)
    known = {s["address"] for s in first.snapshot()["segments"]}
    for _ in range(200):
        block = rng.choice([b for s in second.snapshot()["segments"] for b in s["blocks"] if b["state"] != "inactive"])
        first.free(block["address"])
        second.free(block["address"])
        nbytes = min(block["requested_size"], 900 * 1024)
        assert first.malloc(nbytes) == second.malloc(nbytes)
        if {s["address"] for s in first.snapshot()["segments"]} - known:
            break
    assert first.reserved_bytes == second.reserved_bytes


def test_memory_of_the_given_state_is_counted_against_the_capacity() -> None:
    """The default driver takes the segments over; a given one is expected to hold them."""
    segments = CachingAllocator(GIB).snapshot()["segments"]
    assert segments == []
    allocator = CachingAllocator(GIB)
    allocator.malloc(600 * MIB)
    again = CachingAllocator.from_segments(allocator.snapshot()["segments"], GIB)
    assert again.driver.free_bytes == 424 * MIB
    driver = RisingDriver(GIB)
    CachingAllocator.from_segments(allocator.snapshot()["segments"], GIB, driver=driver)
    assert driver.free_bytes == GIB


def test_segments_of_old_snapshots_need_no_pool_and_no_kind() -> None:
    """What snapshots of 2023 do not tell has a default; a freed block that waits has the older name of its state."""
    segment = {
        "address": 1 << 30,
        "total_size": 20 * MIB,
        "stream": 3,
        "segment_type": "large",
        "blocks": [
            {"size": 4 * MIB, "state": "active_allocated"},
            {"size": 6 * MIB, "state": "active_awaiting_free"},
            {"size": 10 * MIB, "state": "inactive"},
        ],
    }
    allocator = CachingAllocator.from_segments([segment], GIB)
    assert allocator.allocated_bytes == 4 * MIB
    assert allocator.stats()["active_bytes.all.current"] == 10 * MIB
    assert allocator.stats()["inactive_split.all.current"] == 1
    assert allocator.malloc(16 * MIB, stream=3) == (1 << 30) + 4 * MIB


def test_snapshot_tells_the_settings() -> None:
    """The configuration stands in the snapshot under PyTorch's names."""
    settings = CachingAllocator(GIB, "max_split_size_mb:64,roundup_power2_divisions:4").snapshot()["allocator_settings"]
    assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64,roundup_power2_divisions:4"
    assert settings["max_split_size"] == 64 * MIB
    assert settings["roundup_power2_divisions"]["32768"] == 4
    assert CachingAllocator(GIB).snapshot()["allocator_settings"]["max_split_size"] == -1


@pytest.mark.parametrize("mode", ["plain", "streams", "whole_pools"])
@pytest.mark.parametrize("config", CONFIGS)
def test_blocks_tile_their_segments_and_add_up_to_the_statistics(config: str, mode: str) -> None:
    """No gap, no overlap, no two free neighbours; every byte is counted once."""
    allocator = _worked(config, mode)
    segments = allocator.snapshot()["segments"]
    stats = allocator.stats()
    totals = dict.fromkeys(("active_allocated", "active_pending_free", "inactive"), 0)
    end = 0
    for segment in segments:
        assert segment["address"] >= end
        end = segment["address"]
        states = [block["state"] for block in segment["blocks"]]
        assert "inactive" not in {before for before, after in pairwise(states) if before == after}
        for block in segment["blocks"]:
            assert block["address"] == end
            end += block["size"]
            totals[block["state"]] += block["size"]
        assert end == segment["address"] + segment["total_size"]
    assert totals["active_allocated"] == stats["allocated_bytes.all.current"]
    assert totals["active_allocated"] + totals["active_pending_free"] == stats["active_bytes.all.current"]
    assert sum(totals.values()) == stats["reserved_bytes.all.current"]
    assert stats["reserved_bytes.all.peak"] <= allocator.total_bytes
