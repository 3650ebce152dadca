from types import SimpleNamespace

import pytest
import torch

from memguard.backends import accelerator
from memguard.backends.accelerator import MpsBackend, XpuBackend
from memguard.backends.peaks import PeakLedger
from memguard.records.stats import MemoryStats
from tests.backends.fake_allocator import FakeTorchC

MIB = 2**20


class FakeMps:
    """Apple's allocator: two numbers, no peaks."""

    allocated, driver = 3 * MIB, 10 * MIB

    def current_allocated_memory(self) -> int:
        return self.allocated

    def driver_allocated_memory(self) -> int:
        return self.driver

    def recommended_max_memory(self) -> int:
        return 100 * MIB

    def empty_cache(self) -> None:
        self.driver = 4 * MIB


def test_mps_tells_what_it_knows_and_no_peaks():
    """Allocated and driver memory are told; peaks and counters are unknown, and it says so."""
    backend = MpsBackend(FakeMps())
    assert backend.boundary() == backend.read() == MemoryStats(allocated_bytes=3 * MIB, reserved_bytes=10 * MIB)
    assert not backend.measures_peaks
    assert backend.device == "mps"
    assert backend.total_bytes == backend.read_slow().device_total_bytes == 100 * MIB
    assert backend.empty_cache() == 6 * MIB


@pytest.fixture
def xpu(monkeypatch):
    """A torch.xpu that the test initialises, over a fake allocator."""
    allocator = FakeTorchC()
    state = SimpleNamespace(initialized=False, allocator=allocator)
    fake = SimpleNamespace(
        is_initialized=lambda: state.initialized,
        current_device=lambda: 1,
        get_device_properties=lambda index: SimpleNamespace(name=f"Fake {index}", total_memory=64 * MIB),
        mem_get_info=lambda index: (20 * MIB, 64 * MIB),
        memory_reserved=lambda index: 8 * MIB,
        empty_cache=lambda: allocator.empty_cache(1),
    )
    monkeypatch.setattr(accelerator.torch, "xpu", fake)
    ledger = PeakLedger(allocator, ("_cuda_memoryStats",), ("_cuda_resetPeakMemoryStats",))
    monkeypatch.setattr(XpuBackend, "ledger", ledger)
    return state


def test_xpu_wakes_with_the_user_s_program(xpu):
    """Before the initialisation all is unknown; after it the current device is watched, with true peaks."""
    backend = XpuBackend()
    backend.install()
    assert backend.boundary() == MemoryStats()
    assert (backend.device, backend.name, backend.total_bytes) == ("xpu", None, None)
    xpu.initialized = True
    xpu.allocator.allocate(8 * MIB, device=1)
    xpu.allocator.free(6 * MIB, device=1)
    stats = backend.boundary()
    assert (stats.allocated_bytes, stats.allocated_peak_bytes) == (2 * MIB, 8 * MIB)
    assert stats.num_device_alloc is None and stats.num_ooms is None
    assert backend.boundary().allocated_peak_bytes == 2 * MIB
    assert (backend.device, backend.name, backend.total_bytes) == ("xpu:1", "Fake 1", 64 * MIB)
    slow = backend.read_slow()
    assert (slow.device_used_bytes, slow.process_reserved_bytes) == (44 * MIB, 8 * MIB)
    assert backend.empty_cache() == 6 * MIB
    backend.remove()


def test_an_xpu_driver_that_does_not_tell_its_use_leaves_it_unknown(xpu, monkeypatch):
    """Integrated GPUs refuse the question; the capacity is still told."""

    def refuse(index):
        raise RuntimeError("not supported")

    monkeypatch.setattr(torch.xpu, "mem_get_info", refuse)
    xpu.initialized = True
    backend = XpuBackend(0)
    backend.read()
    slow = backend.read_slow()
    assert (slow.device_total_bytes, slow.device_used_bytes) == (64 * MIB, None)


def test_an_allocator_that_does_not_count_is_said_once(xpu, caplog):
    """With an allocator of the user's own there are no statistics: one warning, then unknowns."""
    xpu.initialized = True
    backend = XpuBackend(0)
    backend.install()
    xpu.allocator._cuda_memoryStats = None

    def refuse(device):
        raise RuntimeError("does not yet support getDeviceStats")

    backend.ledger._read = refuse
    assert backend.boundary() == backend.boundary() == MemoryStats()
    assert not backend.measures_peaks
    assert len(caplog.records) == 1
    assert "getDeviceStats" in caplog.text
