"""Memory snapshots from strangers; what each hostile file does is in tests/allocator/test_snapshot_reader.py."""

from __future__ import annotations

import pickle
import random

import pytest

from tests.allocator.test_snapshot_reader import PLAIN, committed_bytes, mutated_is_safe


@pytest.mark.slow
def test_a_hundred_thousand_bent_snapshots() -> None:
    """Bytes, opcodes, cuts and copies: a snapshot, or a SnapshotError."""
    chance = random.Random(3)
    seeds = [pickle.dumps(PLAIN, protocol) for protocol in range(6)] + [committed_bytes("roundup")[:6000]]
    for _ in range(100_000):
        mutated_is_safe(chance, chance.choice(seeds))
