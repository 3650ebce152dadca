import os
import random
import threading

import pytest

from memguard.backends.peaks import PeakLedger
from tests.backends.fake_allocator import FakeTorchC

READERS = ("_cuda_memoryStats", "_accelerator_getDeviceStats")
RESETTERS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")
MIB = 2**20


def make() -> tuple[FakeTorchC, PeakLedger]:
    torch_c = FakeTorchC()
    return torch_c, PeakLedger(torch_c, READERS, RESETTERS)


def peak(torch_c: FakeTorchC, device: int = 0) -> int:
    return torch_c._cuda_memoryStats(device)["allocated_bytes"]["all"]["peak"]


def test_each_stretch_has_its_own_peak():
    """A boundary returns the peak since the boundary before, not since the process began."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(6 * MIB)
    assert stretch.boundary().peaks.allocated == 8 * MIB
    torch_c.allocate(1 * MIB)
    assert stretch.read().peaks.allocated == 3 * MIB
    assert stretch.boundary().peaks.allocated == 3 * MIB
    assert stretch.boundary().peaks == (3 * MIB, 8 * MIB, 3 * MIB)


def test_others_keep_seeing_the_peak_over_all_stretches():
    """Our resets are invisible to whoever reads the counters."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    stretch.boundary()
    assert peak(torch_c) == 8 * MIB
    assert torch_c._accelerator_getDeviceStats(0)["allocated_bytes"]["large_pool"]["peak"] == 8 * MIB


@pytest.mark.parametrize("name", RESETTERS)
def test_a_reset_by_others_starts_their_peak_anew_and_leaves_ours(name):
    """Either way of resetting clears what others see; the batch's own peak still counts what came before it."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    stretch.boundary()
    torch_c.allocate(4 * MIB)
    torch_c.free(4 * MIB)
    getattr(torch_c, name)(0)
    torch_c.allocate(1 * MIB)
    assert peak(torch_c) == 1 * MIB
    assert stretch.boundary().peaks.allocated == 4 * MIB
    assert peak(torch_c) == 1 * MIB


def test_two_guards_on_one_device_do_not_disturb_each_other():
    """Each guard has the peak since its own boundary; the ledger goes with the last of them."""
    torch_c, ledger = make()
    outer, inner = ledger.open(0), ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    inner.boundary()
    torch_c.allocate(2 * MIB)
    assert inner.boundary().peaks.allocated == 2 * MIB
    assert outer.boundary().peaks.allocated == 8 * MIB
    inner.close()
    assert ledger.installed
    torch_c.allocate(1 * MIB)
    assert outer.boundary().peaks.allocated == 3 * MIB


def test_devices_are_kept_apart():
    """A boundary on one device changes nothing on another."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB, device=1)
    torch_c.free(8 * MIB, device=1)
    stretch.boundary()
    assert peak(torch_c, 0) == 0
    assert torch_c.stats[1]["allocated_bytes"]["all"]["peak"] == 8 * MIB


def test_close_restores_the_functions_when_nobody_is_owed_a_peak():
    """Without a higher peak in the past the original functions are back at once."""
    torch_c, ledger = make()
    originals = {name: getattr(torch_c, name) for name in (*READERS, *RESETTERS)}
    stretch = ledger.open(0)
    assert torch_c._cuda_memoryStats != originals["_cuda_memoryStats"]
    torch_c.allocate(8 * MIB)
    stretch.boundary()
    stretch.close()
    assert not ledger.installed
    assert {name: getattr(torch_c, name) for name in originals} == originals
    stretch.close()


def test_a_script_that_asks_after_the_training_gets_its_peak():
    """After close the past peak is still told, until somebody resets; then the original functions are back."""
    torch_c, ledger = make()
    original = torch_c._cuda_memoryStats
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    stretch.boundary()
    stretch.close()
    assert peak(torch_c) == 8 * MIB
    torch_c._cuda_resetPeakMemoryStats(0)
    assert peak(torch_c) == 0
    assert torch_c._cuda_memoryStats == original


def test_a_second_guard_takes_over_what_the_first_left_owed():
    """A peak from the time of an earlier guard survives into the next one's."""
    torch_c, ledger = make()
    for nbytes in (8 * MIB, 2 * MIB):
        stretch = ledger.open(0)
        torch_c.allocate(nbytes)
        torch_c.free(nbytes)
        stretch.boundary()
        stretch.close()
    assert peak(torch_c) == 8 * MIB


def test_a_patch_of_someone_else_over_ours_is_left_alone():
    """What another tool put over our functions stays, and goes on to work through ours."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    ours = torch_c._cuda_memoryStats

    def theirs(device):
        return ours(device)

    torch_c._cuda_memoryStats = theirs
    stretch.close()
    assert torch_c._cuda_memoryStats is theirs
    assert peak(torch_c) == 0


def test_functions_that_this_torch_lacks_are_unsampled_tensors():
    """The first of the names that exists is used; older versions of torch lack some."""
    torch_c = FakeTorchC()
    ledger = PeakLedger(torch_c, ("newer", *READERS), ("newer", *RESETTERS))
    assert (ledger.reader, ledger.resetter) == (READERS[0], RESETTERS[0])
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    assert stretch.boundary().peaks.allocated == 8 * MIB
    stretch.close()
    assert not hasattr(torch_c, "newer")


def test_bad_arguments_raise_what_torch_raises():
    """A wrong device gets torch's own error."""
    torch_c, ledger = make()
    ledger.open(0)
    for argument in (None, "0", []):
        with pytest.raises(RuntimeError, match="memory_allocated"):
            torch_c._cuda_memoryStats(argument)
        with pytest.raises(RuntimeError, match="reset_peak_memory_stats"):
            torch_c._cuda_resetPeakMemoryStats(argument)


def test_private_pools_that_come_and_go_stay_as_torch_tells_them():
    """A pool's peak is kept over our resets while the pool lives, and forgotten with it."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.pool((0, 1), 8 * MIB)
    torch_c.pool((0, 1), 2 * MIB)
    stretch.boundary()
    assert torch_c._cuda_memoryStats(0)["by_pool"][0, 1]["all"]["peak"] == 8 * MIB
    torch_c.pool((0, 1), None)
    assert torch_c._cuda_memoryStats(0)["by_pool"] == {}
    stretch.boundary()
    torch_c.pool((0, 1), 1 * MIB)
    assert torch_c._cuda_memoryStats(0)["by_pool"][0, 1]["all"]["peak"] == 1 * MIB


def test_a_reader_that_runs_within_a_boundary_does_not_lock_up():
    """A finalizer or signal handler may read while we hold the lock."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    seen = []
    read_raw = torch_c._cuda_memoryStats_raw

    def reset_and_read(device):
        seen.append(peak(torch_c))
        FakeTorchC._cuda_resetPeakMemoryStats(torch_c, device)

    ledger._reset = reset_and_read
    thread = threading.Thread(target=stretch.boundary)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert seen == [8 * MIB]
    assert read_raw(0)["allocated_bytes"]["all"]["peak"] == 0


def test_threads_that_read_and_reset_meanwhile_never_see_a_lost_peak():
    """A reader in another thread sees the whole peak, whatever moment it asks in."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    low, done = [], threading.Event()

    def read() -> None:
        while not done.is_set():
            if peak(torch_c) != 8 * MIB:
                low.append(peak(torch_c))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        stretch.boundary()
    done.set()
    for thread in threads:
        thread.join()
    assert low == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_is_left_alone():
    """In a child the functions pass through, even if the parent held the lock while it forked."""
    torch_c, ledger = make()
    stretch = ledger.open(0)
    torch_c.allocate(8 * MIB)
    torch_c.free(8 * MIB)
    stretch.boundary()
    with ledger._lock:
        child = os.fork()
        if child == 0:
            done = []
            thread = threading.Thread(target=lambda: done.append(peak(torch_c)))
            thread.start()
            thread.join(5)
            again = ledger.open(0)
            again.boundary()
            os._exit(0 if done == [0] and peak(torch_c) == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("seed", range(20))
def test_fuzz_everybody_sees_what_a_twin_without_us_sees(seed):
    """Random allocations, frees, resets, reads and boundaries: reads equal the twin's, batch peaks the truth."""
    rng = random.Random(seed)
    torch_c, ledger = make()
    twin = FakeTorchC()
    stretches = [ledger.open(0), ledger.open(0)]
    truths = [0, 0]
    live: list[int] = []
    for _ in range(400):
        action = rng.choice(("allocate", "allocate", "free", "free", "empty", "reset", "read", "boundary"))
        if action == "allocate":
            live.append(nbytes := rng.choice((512, MIB, 3 * MIB, 20 * MIB)))
            torch_c.allocate(nbytes)
            twin.allocate(nbytes)
        elif action == "free" and live:
            nbytes = live.pop(rng.randrange(len(live)))
            torch_c.free(nbytes)
            twin.free(nbytes)
        elif action == "empty":
            torch_c.empty_cache()
            twin.empty_cache()
        elif action == "reset":
            name = rng.choice(RESETTERS)
            getattr(torch_c, name)(0)
            getattr(twin, name)(0)
        elif action == "read":
            name = rng.choice(READERS)
            assert getattr(torch_c, name)(0) == getattr(twin, name)(0)
        truths = [max(truth, sum(live)) for truth in truths]
        if action == "boundary":
            which = rng.randrange(2)
            assert stretches[which].boundary().peaks.allocated == truths[which]
            truths[which] = sum(live)
    for stretch in stretches:
        stretch.close()
    assert torch_c._cuda_memoryStats(0) == twin._cuda_memoryStats(0)
