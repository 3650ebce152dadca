"""Twin runs on the real allocator: what everybody sees with memguard must be what they see without it."""

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.cuda import max_memory_allocated as imported_by_name

from memguard.backends.cuda import CudaBackend

pytestmark = pytest.mark.cuda

MIB = 2**20
SIZES = (512, 4096, MIB, 3 * MIB, 15 * MIB, 40 * MIB)

READERS: dict[str, Callable[[], Any]] = {
    "max_memory_allocated": torch.cuda.max_memory_allocated,
    "imported by name": imported_by_name,
    "max_memory_reserved": lambda: torch.cuda.max_memory_reserved(0),
    "memory_stats": lambda: dict(torch.cuda.memory_stats()),
    "nested": torch.cuda.memory_stats_as_nested_dict
    if hasattr(torch.cuda, "memory_stats_as_nested_dict")
    else torch.cuda.memory.memory_stats_as_nested_dict,
    "summary": torch.cuda.memory_summary,
    "torch._C": lambda: torch._C._cuda_memoryStats(0),
}
RESETTERS: dict[str, Callable[[], Any]] = {
    "reset_peak_memory_stats": torch.cuda.reset_peak_memory_stats,
    "reset_max_memory_allocated": lambda: quietly(torch.cuda.reset_max_memory_allocated),
    "reset_max_memory_cached": lambda: quietly(torch.cuda.reset_max_memory_cached),
    "reset_accumulated_memory_stats": torch.cuda.reset_accumulated_memory_stats,
    "torch._C": lambda: torch._C._cuda_resetPeakMemoryStats(0),
}
if hasattr(torch, "accelerator") and hasattr(torch.accelerator, "memory_stats"):
    READERS |= {
        "accelerator.max_memory_allocated": torch.accelerator.max_memory_allocated,
        "accelerator.max_memory_reserved": torch.accelerator.max_memory_reserved,
        "accelerator.memory_stats": lambda: dict(torch.accelerator.memory_stats()),
    }
    RESETTERS |= {
        "accelerator.reset_peak_memory_stats": torch.accelerator.reset_peak_memory_stats,
        "accelerator.reset_accumulated_memory_stats": torch.accelerator.reset_accumulated_memory_stats,
    }


def quietly(function: Callable[[], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        function()


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """An allocator that holds nothing and has counted nothing, before and after."""
    torch.cuda.init()
    start_anew()
    yield
    start_anew()


@pytest.fixture
def guard() -> Iterator[Callable[..., CudaBackend]]:
    """Makes installed backends, which are removed at the end whatever happens."""
    made: list[CudaBackend] = []

    def make(index: int | None = None, **options: str) -> CudaBackend:
        made.append(CudaBackend(index, **options))
        made[-1].install()
        return made[-1]

    yield make
    for backend in made:
        backend.remove()


def start_anew() -> None:
    torch.cuda.empty_cache()
    for device in range(torch.cuda.device_count()):  # another test may have left a peak owed on any of them
        torch.cuda.reset_peak_memory_stats(device)
    torch.cuda.reset_accumulated_memory_stats()


def block(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def script(seed: int, *, length: int = 250) -> list[tuple[str, Any]]:
    """A random program: what it does, step by step."""
    rng = random.Random(seed)
    steps: list[tuple[str, Any]] = []
    for _ in range(length):
        kind = rng.choice(("allocate",) * 4 + ("free",) * 4 + ("reset", "read", "read", "boundary", "empty"))
        choices = {"allocate": SIZES, "free": [rng.random()], "reset": list(RESETTERS), "read": list(READERS)}
        steps.append((kind, rng.choice(choices.get(kind, [None]))))
    return [*steps, ("read", "nested"), ("read", "torch._C")]


def run(
    steps: list[tuple[str, Any]], boundary: Callable[[], Any] | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Runs a program; returns what its reads saw, what its boundaries returned, and the true peaks between those."""
    live: list[torch.Tensor] = []
    seen, returned, truths = [], [], []
    raw = torch._C._cuda_memoryStats
    truth = [0, 0, 0]
    for kind, argument in steps:
        if kind == "allocate":
            live.append(block(argument))
        elif kind == "free" and live:
            del live[int(argument * len(live))]
        elif kind == "empty":
            torch.cuda.empty_cache()
        elif kind == "reset":
            RESETTERS[argument]()
        elif kind == "read":
            seen.append((argument, READERS[argument]()))
        now = raw(0)
        current = [now[name]["all"]["current"] for name in ("allocated_bytes", "reserved_bytes", "active_bytes")]
        truth = list(map(max, truth, current))
        if kind == "boundary" and boundary is not None:
            returned.append(boundary())
            truths.append(truth)
            truth = current
    live.clear()
    return seen, returned, truths


@pytest.mark.parametrize("seed", range(12))
def test_fuzz_reads_equal_those_of_the_twin_and_batch_peaks_the_truth(seed, guard):
    """Every way of reading sees what it would see without us; every batch has its true peaks."""
    steps = script(seed)
    seen_without, _, _ = run(steps)
    start_anew()
    backend = guard(peaks="shared")
    backend.boundary()
    seen_with, records, truths = run(steps, backend.boundary)
    assert seen_with == seen_without
    peaks = [[r.allocated_peak_bytes, r.reserved_peak_bytes, r.active_peak_bytes] for r in records]
    assert peaks == truths
    after = torch.cuda.max_memory_allocated()
    backend.remove()
    assert torch.cuda.max_memory_allocated() == after


def training(batch: Callable[[int], None], epochs: int = 12) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for index in range(epochs):
        model(torch.randn(1024 * (1 + index % 5), 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        batch(index)


def test_batch_peaks_equal_those_of_a_twin_that_resets_by_hand(guard):
    """A real training: each batch's peak is what max_memory_allocated tells a loop that resets in every batch."""
    by_hand: list[tuple[int, int]] = []

    def reset_by_hand(index: int) -> None:
        by_hand.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
        torch.cuda.reset_peak_memory_stats()

    training(reset_by_hand)
    start_anew()
    backend = guard()
    records = []
    training(lambda index: records.append(backend.boundary()))
    backend.remove()
    assert [(r.allocated_peak_bytes, r.reserved_peak_bytes) for r in records] == by_hand
    assert len({r.allocated_peak_bytes for r in records}) > 3


@pytest.mark.parametrize("ours_first", [True, False])
def test_another_callback_that_resets_in_every_batch_is_undisturbed(ours_first, guard):
    """A callback that reads and resets sees the same with us before it, behind it, and without us; so do we."""

    def run_with(backend: CudaBackend | None) -> tuple[list[int], list[int | None]]:
        theirs: list[int] = []
        ours: list[int | None] = []

        def their_callback() -> None:
            theirs.append(torch.cuda.max_memory_allocated())
            torch.cuda.reset_peak_memory_stats()

        def batch(index: int) -> None:
            calls = [their_callback]
            if backend is not None:
                calls.insert(0 if ours_first else 1, lambda: ours.append(backend.boundary().allocated_peak_bytes))
            for call in calls:
                call()

        training(batch)
        return theirs, ours

    without, _ = run_with(None)
    start_anew()
    backend = guard()
    with_us, ours = run_with(backend)
    backend.remove()
    assert with_us == without
    assert ours == without


def test_private_pools_keep_their_peaks(guard):
    """The statistics of a CUDA graph's or MemPool's own pool are as they would be without us."""
    if not hasattr(torch.cuda, "MemPool"):
        pytest.skip("this torch has no MemPool")

    def program(boundary: Callable[[], Any]) -> Any:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            large = block(30 * MIB)
            small = block(MIB)
        del large
        boundary()
        stats = torch.cuda.memory_stats_as_nested_dict()
        pools = stats.pop("reserved_bytes_by_private_pools", {})
        del small, pool
        return pools[max(pools)] if pools else None, stats

    without = program(lambda: None)
    start_anew()
    backend = guard()
    assert program(backend.boundary) == without
    backend.remove()


def test_install_and_remove_leave_torch_as_it_was(guard):
    """Two guards are counted; with the last one, and nobody owed a peak, torch's own functions are back."""
    names = ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats", "_accelerator_getDeviceStats")
    before = {name: getattr(torch._C, name, None) for name in names}
    first, second = guard(), guard(0)
    first.boundary()
    first.remove()
    assert torch._C._cuda_memoryStats is not before["_cuda_memoryStats"]
    second.remove()
    second.remove()
    assert {name: getattr(torch._C, name, None) for name in names} == before


def test_a_peak_owed_is_told_after_the_guard_is_gone(guard):
    """`max_memory_allocated` at the end of a script, after the guard was removed, is the whole run's."""
    original = torch._C._cuda_memoryStats
    backend = guard()
    big = block(100 * MIB)
    del big
    backend.boundary()
    backend.remove()
    assert torch.cuda.max_memory_allocated() == 100 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch._C._cuda_memoryStats is original


def test_exclusive_measures_peaks_and_says_what_it_costs_others(guard):
    """With peaks="exclusive" torch's functions are untouched and others see the last batch only."""
    original = torch._C._cuda_memoryStats
    backend = guard(peaks="exclusive")
    assert torch._C._cuda_memoryStats is original
    big = block(100 * MIB)
    del big
    assert backend.boundary().allocated_peak_bytes == 100 * MIB
    assert backend.boundary().allocated_peak_bytes == 0
    assert torch.cuda.max_memory_allocated() == 0
    assert backend.measures_peaks


def test_off_never_resets_and_knows_only_records(guard):
    """With peaks="off" a batch's peak is known only when it is the highest yet; others see all."""
    backend = guard(peaks="off")
    backend.boundary()
    for megabytes, known in ((50, True), (20, False), (60, True)):
        tensor = block(megabytes * MIB)
        del tensor
        peak = backend.boundary().allocated_peak_bytes
        assert peak == (megabytes * MIB if known else None)
    assert torch.cuda.max_memory_allocated() == 60 * MIB
    assert not backend.measures_peaks


def test_a_look_without_install_has_no_consequences():
    """Neither read nor boundary of a backend that is not installed resets anything."""
    tensor = block(100 * MIB)
    del tensor
    backend = CudaBackend()
    assert backend.boundary().allocated_bytes == 0
    assert backend.read().allocated_peak_bytes is None
    assert torch.cuda.max_memory_allocated() == 100 * MIB


@pytest.mark.filterwarnings("ignore")  # torch 2.11 of itself, and of the list to which the function appends
def test_compiled_functions_see_true_peaks_without_more_graph_breaks(guard):
    """Reading the peak inside a compiled function gives the same graphs and the same value as without us."""
    import torch._dynamo

    def count() -> tuple[int, int, int]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        seen = []

        def function(x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            seen.append(torch.cuda.max_memory_allocated())
            return y * 2

        torch.compile(function, backend="eager")(torch.ones(8, device="cuda"))
        stats = torch._dynamo.utils.counters["stats"]
        return stats["unique_graphs"], stats["calls_captured"], seen[0]

    big = block(100 * MIB)
    del big
    without = count()
    backend = guard()
    backend.boundary()
    assert count() == without
    assert without[2] == 100 * MIB
    backend.remove()
