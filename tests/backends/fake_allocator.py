"""The part of ``torch._C`` that hands out CUDA's statistics, over an allocator of plain numbers."""

from __future__ import annotations

from typing import Any

BYTES = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "inactive_split_bytes")


class FakeTorchC:
    """Statistics in torch's shape; blocks above 1 MiB are of the large pool, reserved memory only grows."""

    def __init__(self, devices: int = 2) -> None:
        self.stats = [self._zero() for _ in range(devices)]
        self.readings = 0

    @staticmethod
    def _zero() -> dict[str, Any]:
        def stat() -> dict[str, int]:
            return dict.fromkeys(("current", "peak", "allocated", "freed"), 0)

        pools = {name: {pool: stat() for pool in ("all", "small_pool", "large_pool")} for name in BYTES}
        return {"num_ooms": 0, "num_alloc_retries": 0, **pools, "oversize_segments": stat(), "by_pool": {}}

    def allocate(self, nbytes: int, device: int = 0) -> None:
        stats, pool = self.stats[device], "large_pool" if abs(nbytes) > 2**20 else "small_pool"
        for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
            self._change(stats[name], pool, nbytes)
        missing = stats["allocated_bytes"]["all"]["current"] - stats["reserved_bytes"]["all"]["current"]
        self._change(stats["reserved_bytes"], pool, max(missing, 0))

    def free(self, nbytes: int, device: int = 0) -> None:
        self.allocate(-nbytes, device)

    def empty_cache(self, device: int = 0) -> None:
        reserved = self.stats[device]["reserved_bytes"]
        for pool in ("small_pool", "large_pool"):
            spare = reserved[pool]["current"] - max(self.stats[device]["allocated_bytes"][pool]["current"], 0)
            self._change(reserved, pool, -max(spare, 0))

    @staticmethod
    def _change(pools: dict[str, dict[str, int]], pool: str, nbytes: int) -> None:
        for leaf in (pools["all"], pools[pool]):
            leaf["current"] += nbytes
            leaf["allocated" if nbytes > 0 else "freed"] += abs(nbytes)
            leaf["peak"] = max(leaf["peak"], leaf["current"])

    def pool(self, key: tuple[int, int], peak: int | None, device: int = 0) -> None:
        """A private pool comes, grows, or goes (None)."""
        pools = self.stats[device]["by_pool"]
        if peak is None:
            del pools[key]
        else:
            leaf = pools.setdefault(key, {"all": {"current": 0, "peak": 0}})["all"]
            leaf["current"], leaf["peak"] = peak, max(leaf["peak"], peak)

    # What Python finds in torch._C

    def _cuda_memoryStats(self, device: int, /) -> dict[str, Any]:
        if not isinstance(device, int):
            raise RuntimeError("invalid argument to memory_allocated")
        self.readings += 1
        return _copy(self.stats[device])

    def _accelerator_getDeviceStats(self, device: int, /) -> dict[str, Any]:
        return {name: value for name, value in self._cuda_memoryStats_raw(device).items() if name != "by_pool"}

    def _cuda_memoryStats_raw(self, device: int) -> dict[str, Any]:
        return _copy(self.stats[device])

    def _cuda_resetPeakMemoryStats(self, device: int, /) -> None:
        if not isinstance(device, int):
            raise RuntimeError("invalid argument to reset_peak_memory_stats")
        _reset(self.stats[device])

    def _accelerator_resetPeakStats(self, device: int, /) -> None:
        _reset(self.stats[device])


def _copy(value: Any) -> Any:
    return {name: _copy(part) for name, part in value.items()} if isinstance(value, dict) else value


def _reset(value: dict[Any, Any]) -> None:
    if "peak" in value:
        value["peak"] = value["current"]
    for part in value.values():
        if isinstance(part, dict):
            _reset(part)
