"""The allocator's statistics, under the meanings and names of ``torch.cuda.memory_stats``."""

from __future__ import annotations

from typing import Final, final


@final
class Stat:
    """One figure: what is there now, the most there was, and all that came and went (C++: ``Stat``)."""

    __slots__ = ("_base", "allocated", "current", "peak")

    def __init__(self) -> None:
        self.current = 0
        self.peak = 0
        self.allocated = 0
        self._base = 0

    @property
    def freed(self) -> int:
        """All that went since the accumulated figures were last reset."""
        return self._base + self.allocated - self.current

    def increase(self, amount: int) -> None:
        """Counts what came."""
        self.allocated += amount
        self.current += amount
        if self.current > self.peak:
            self.peak = self.current

    def decrease(self, amount: int) -> None:
        """Counts what went."""
        self.current -= amount

    def reset_peak(self) -> None:
        """Begins a new peak at the current figure."""
        self.peak = self.current

    def reset_accumulated(self) -> None:
        """Counts what comes and goes from zero again."""
        self.allocated = 0
        self._base = self.current


@final
class PoolStatistics:
    """The figures of the small pools, of the large pools, or of all of them together (C++: ``StatTypes``)."""

    KEYS: Final = (
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    )
    __slots__ = KEYS

    def __init__(self) -> None:
        self.allocation = Stat()
        self.segment = Stat()
        self.active = Stat()
        self.inactive_split = Stat()
        self.allocated_bytes = Stat()
        self.reserved_bytes = Stat()
        self.active_bytes = Stat()
        self.inactive_split_bytes = Stat()
        self.requested_bytes = Stat()

    def hand_out(self, size: int, requested: int) -> None:
        """Counts a block given to a tensor; written out, as it stands on the path of every allocation."""
        stat = self.allocation
        stat.allocated += 1
        stat.current = now = stat.current + 1
        if now > stat.peak:
            stat.peak = now
        stat = self.active
        stat.allocated += 1
        stat.current = now = stat.current + 1
        if now > stat.peak:
            stat.peak = now
        stat = self.allocated_bytes
        stat.allocated += size
        stat.current = now = stat.current + size
        if now > stat.peak:
            stat.peak = now
        stat = self.active_bytes
        stat.allocated += size
        stat.current = now = stat.current + size
        if now > stat.peak:
            stat.peak = now
        stat = self.requested_bytes
        stat.allocated += requested
        stat.current = now = stat.current + requested
        if now > stat.peak:
            stat.peak = now

    def give_back(self, size: int, requested: int) -> None:
        """Counts a block that its tensor has let go, and that no other stream uses."""
        self.allocation.current -= 1
        self.allocated_bytes.current -= size
        self.active.current -= 1
        self.active_bytes.current -= size
        self.requested_bytes.current -= requested

    def take_back(self, size: int) -> None:
        """Counts a block that its tensor has let go while other streams use it."""
        self.allocation.current -= 1
        self.allocated_bytes.current -= size

    def settle(self, size: int, requested: int) -> None:
        """Counts a block that nobody uses any more."""
        self.active.current -= 1
        self.active_bytes.current -= size
        self.requested_bytes.current -= requested

    def change_inactive_split(self, blocks: int, nbytes: int) -> None:
        """Counts a net change of the free parts of segments that are partly in use."""
        stat = self.inactive_split
        if blocks > 0:
            stat.increase(blocks)
        elif blocks:
            stat.current += blocks
        stat = self.inactive_split_bytes
        if nbytes > 0:
            stat.increase(nbytes)
        else:
            stat.current += nbytes

    def stats(self) -> dict[str, Stat]:
        """Every figure under its name."""
        return {key: getattr(self, key) for key in self.KEYS}


@final
class DeviceStatistics:
    """Everything that ``torch.cuda.memory_stats`` tells of a device (C++: ``DeviceStats``)."""

    COUNTERS: Final = (
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
    )
    __slots__ = (
        *COUNTERS,
        "_reserved_by_private_pools",
        "all",
        "large_pool",
        "oversize_allocations",
        "oversize_segments",
        "small_pool",
    )

    def __init__(self) -> None:
        self.all = PoolStatistics()
        self.small_pool = PoolStatistics()
        self.large_pool = PoolStatistics()
        self.oversize_allocations = Stat()
        self.oversize_segments = Stat()
        self._reserved_by_private_pools: dict[tuple[int, int], dict[str, Stat]] = {}
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0
        self.num_oom_rejections = 0

    def reserved_by(self, pool_id: tuple[int, int], is_small: bool) -> tuple[Stat, Stat]:
        """The bytes that a private pool holds: in all, and in its small or its large pool."""
        stats = self._reserved_by_private_pools.get(pool_id)
        if stats is None:
            stats = {kind: Stat() for kind in ("all", "small_pool", "large_pool")}
            self._reserved_by_private_pools[pool_id] = stats
        return stats["all"], stats["small_pool" if is_small else "large_pool"]

    def _named(self) -> dict[str, Stat]:
        named = {
            f"{key}.{kind}": stat
            for kind in ("all", "small_pool", "large_pool")
            for key, stat in getattr(self, kind).stats().items()
        }
        for (owner, number), stats in self._reserved_by_private_pools.items():
            for kind, stat in stats.items():
                named[f"reserved_bytes_by_private_pools.{owner}_{number}.{kind}"] = stat
        return named | {
            "oversize_allocations": self.oversize_allocations,
            "oversize_segments": self.oversize_segments,
        }

    def reset_peak(self) -> None:
        """Begins every peak anew at its current figure."""
        for stat in self._named().values():
            stat.reset_peak()

    def reset_accumulated(self) -> None:
        """Counts everything that accumulates from zero again."""
        for stat in self._named().values():
            stat.reset_accumulated()
        for counter in self.COUNTERS:
            setattr(self, counter, 0)

    def flat(self) -> dict[str, int]:
        """All figures under the keys of ``torch.cuda.memory_stats``, sorted; ``max_split_size`` is not among them."""
        flat = {counter: int(getattr(self, counter)) for counter in self.COUNTERS}
        for name, stat in self._named().items():
            for part in ("current", "peak", "allocated", "freed"):
                flat[f"{name}.{part}"] = getattr(stat, part)
        return dict(sorted(flat.items()))
