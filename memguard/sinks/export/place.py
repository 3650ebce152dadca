"""Who exports: rank, node, device and parallel coordinates, under the names of OpenTelemetry's resource attributes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from memguard.axes import AXES

LABELS = ("memguard.run", "memguard.rank", "memguard.node", *(f"memguard.parallel.{axis}" for axis in AXES))
"""The attributes that tell the ranks of a node apart at one Prometheus port: each series has all of them."""


@final
@dataclass(slots=True, kw_only=True)
class Exporting:
    """One process of a run, as its metrics name it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int | None = None
    node: str | None = None
    restart: int = 0
    run: str = ""
    version: str = ""
    coordinates: Mapping[str, int] = field(default_factory=dict)
    """This rank's place on the parallel axes, as far as it is known by now."""

    def resource(self) -> dict[str, str | int]:
        """Attributes by name: semantic conventions' own where they exist, else below ``memguard.``."""
        host = socket.gethostname()
        told: dict[str, str | int | None] = {
            "service.instance.id": f"{host}:{os.getpid()}",
            "service.version": self.version,
            "host.name": host,
            "process.pid": os.getpid(),
            "memguard.run": self.run,
            "memguard.rank": self.rank,
            "memguard.world_size": self.world_size,
            "memguard.local_rank": self.local_rank,
            "memguard.node": self.node,
            "memguard.restart": self.restart,
        }
        told.update({f"memguard.parallel.{axis}": self.coordinates.get(axis) for axis in AXES})
        return {name: value for name, value in told.items() if value is not None}
