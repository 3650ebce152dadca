import pytest

from memguard.backends.counters import Events, Peaks
from memguard.backends.meters import open_meter
from memguard.backends.peaks import PeakLedger
from tests.backends.fake_allocator import FakeTorchC

MIB = 2**20


def make() -> tuple[FakeTorchC, PeakLedger]:
    torch_c = FakeTorchC()
    return torch_c, PeakLedger(torch_c, ("_cuda_memoryStats",), ("_cuda_resetPeakMemoryStats",))


def touch(torch_c: FakeTorchC, nbytes: int) -> None:
    torch_c.allocate(nbytes)
    torch_c.free(nbytes)


def test_exclusive_resets_and_patches_nothing():
    """Each stretch's peak is known, torch's functions are untouched, and others lose the past."""
    torch_c, ledger = make()
    meter = open_meter("exclusive", ledger, 0)
    touch(torch_c, 8 * MIB)
    assert meter.read().peaks.allocated == 8 * MIB
    assert meter.boundary().peaks.allocated == 8 * MIB
    touch(torch_c, 2 * MIB)
    assert meter.boundary().peaks.allocated == 2 * MIB
    assert not ledger.installed
    assert torch_c._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 0
    meter.close()


def test_a_stretch_never_peaks_below_what_it_began_with():
    """The driver's allocator counts from zero after a reset; what is held at the start is a peak all the same."""
    for mode in ("exclusive", "shared"):
        torch_c, ledger = make()
        meter = open_meter(mode, ledger, 0)
        torch_c.allocate(8 * MIB)
        meter.boundary()
        for pool in torch_c.stats[0]["allocated_bytes"].values():
            pool["peak"] = 0
        assert meter.boundary().peaks.allocated == 8 * MIB


def test_off_tells_a_peak_only_when_it_is_certain():
    """Without resets, only a stretch that raised the peak has a known one; a fall by someone's reset tells nothing."""
    torch_c, ledger = make()
    meter = open_meter("off", ledger, 0)
    touch(torch_c, 8 * MIB)
    assert meter.boundary().peaks == Peaks(None, None, None)
    touch(torch_c, 2 * MIB)
    assert meter.boundary().peaks.allocated is None
    touch(torch_c, 9 * MIB)
    assert meter.read().peaks.allocated == 9 * MIB
    assert meter.boundary().peaks.allocated == 9 * MIB
    torch_c._cuda_resetPeakMemoryStats(0)
    touch(torch_c, 5 * MIB)
    assert meter.boundary().peaks.allocated is None
    assert torch_c._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"] == 5 * MIB
    meter.close()


def test_an_unknown_mode_names_the_valid_ones():
    """The error lists the values of the option."""
    with pytest.raises(ValueError, match="shared, exclusive, off"):
        open_meter("never", make()[1], 0)


def test_events_only_ever_grow():
    """A counter set back by someone goes on from where it was; one that torch lacks is unknown."""
    events = Events()
    assert events.count((5, 3, None, None)) == (5, 3, None, None)
    assert events.count((6, 1, None, None)) == (6, 4, None, None)
    assert events.count((0, 2, None, None)) == (6, 5, None, None)
