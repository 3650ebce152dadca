"""Recorded snapshots for tests: the committed ones, and more where the environment has them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

from memguard.allocator.snapshot import Snapshot
from memguard.allocator.snapshot_reader import parse_snapshot, read_snapshot

COMMITTED = sorted((Path(__file__).parent / "snapshots").glob("*.pickle.gz"))
_SHARED = Path(os.environ.get("MEMGUARD_SHARED") or Path(__file__).parents[3] / "shared") / "snapshots"
SHARED = sorted(_SHARED.glob("*.pickle")) if _SHARED.is_dir() else []


def committed(name: str) -> Snapshot:
    return parse_snapshot(committed_bytes(name))


def committed_bytes(name: str) -> bytes:
    return gzip.decompress((Path(__file__).parent / "snapshots" / f"{name}.pickle.gz").read_bytes())


def load(path: Path) -> Snapshot:
    return parse_snapshot(gzip.decompress(path.read_bytes())) if path.suffix == ".gz" else read_snapshot(path)
