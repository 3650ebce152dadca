"""Memory that process groups take outside of the allocator: what MG601 says of it."""

from __future__ import annotations

from typing import final

from memguard.records.stats import SlowStats
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

REMEDY = (
    "make fewer process groups: use one again for the same ranks, and destroy_process_group(group) those that are done "
    "with; NCCL_BUFFSIZE and NCCL_MAX_CTAS make the buffers of each smaller."
)


@final
class GroupsMemory:
    """What this process held beyond its allocator, by the number of process groups that it had.

    NCCL takes a group's buffers when it first communicates: of an earlier number the least counts, of the newest what
    is held now.
    """

    def __init__(self) -> None:
        self._least: dict[int, int] = {}
        self._newest = (0, 0)

    def learn(self, slow: SlowStats, used_bytes: int | None) -> None:
        """One more reading.

        Args:
            slow: What the slow lane reads; how much this process has of the device, the driver may not tell.
            used_bytes: What all have of it.
        """
        used = slow.process_used_bytes
        if used is None and used_bytes is not None:
            used = used_bytes - others_bytes(slow)
        if used is not None and slow.process_reserved_bytes is not None:
            groups, held = slow.process_groups or 0, max(used - slow.process_reserved_bytes, 0)
            self._newest = groups, held
            self._least[groups] = min(held, self._least.get(groups, held))

    def explain(self, grown_bytes: int) -> str | None:
        """What groups took of a growth outside of the allocator, if most of it came as they were made."""
        (groups, held), fewest = self._newest, min(self._least, default=0)
        made, took = groups - fewest, held - self._least.get(fewest, 0)
        if made <= 0 or took < EXPLAINED * grown_bytes:
            return None
        if made == 1:
            return f"{format_bytes(took)} of that came as a process group was made"
        each = format_bytes(took // made)
        return f"{format_bytes(took)} of that came as {made} process groups were made, {each} for each"


def others_bytes(slow: SlowStats) -> int:
    """What the driver lists for other processes, as far as it does."""
    return sum(size for _, size in slow.other_processes or () if size is not None)
