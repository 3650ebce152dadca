import pytest
import torch

from memguard.backends.auto import AutoBackend
from memguard.backends.choose import choose_backend
from memguard.backends.host import HostBackend
from memguard.backends.interface import Backend
from memguard.records.stats import MemoryStats, SlowStats


class FakeBackend(Backend):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @property
    def device(self) -> str:
        return "fake:0"

    @property
    def name(self) -> str | None:
        return "Fake"

    @property
    def total_bytes(self) -> int | None:
        return 1000

    def read(self) -> MemoryStats:
        return MemoryStats(allocated_bytes=1)

    def boundary(self) -> MemoryStats:
        return MemoryStats(allocated_bytes=2)

    def read_slow(self) -> SlowStats:
        return SlowStats(device_total_bytes=1000)

    def install(self) -> None:
        self.calls.append("install")

    def remove(self) -> None:
        self.calls.append("remove")

    def empty_cache(self) -> int | None:
        return 3


def test_cpu_is_the_host():
    """The device "cpu" is the host's own memory."""
    assert isinstance(choose_backend("cpu", peaks="shared"), HostBackend)


def test_auto_is_the_host_where_nothing_else_is_in_use():
    """Without an initialised accelerator "auto" is the host, and initialises none."""
    backend = choose_backend("auto")
    backend.install()
    if not torch.cuda.is_initialized():
        assert backend.device in ("cpu", "mps")
        assert not torch.cuda.is_initialized()
    backend.remove()


def test_virtual_has_the_size_given():
    """The virtual GPU has the capacity that stands behind the colon."""
    pytest.importorskip("memguard.backends.virtual")
    backend = choose_backend("virtual:24GiB")
    assert backend.total_bytes == 24 * 2**30


@pytest.mark.parametrize(
    "device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "virtual", "CUDA", "mps:1", "auto:0"]
)
def test_unknown_devices_name_the_valid_ones(device):
    """A device that does not exist is refused with the list of those that do."""
    with pytest.raises(ValueError, match=r"auto, cuda, cuda:N.*virtual:SIZE"):
        choose_backend(device)


@pytest.mark.parametrize("device", ["virtual:", "virtual:much", "virtual:0"])
def test_a_virtual_device_without_a_size_is_refused(device):
    """The size must be one; the error names the device as it was given."""
    with pytest.raises(ValueError, match=device):
        choose_backend(device)


def test_unknown_ways_to_measure_peaks_name_the_valid_ones():
    """The option peaks is checked whatever the device."""
    with pytest.raises(ValueError, match=r"shared, exclusive, off, got 'never'"):
        choose_backend("cpu", peaks="never")


def test_a_device_that_this_torch_was_not_built_for_is_refused():
    """What is not in the build is said at once, with what is."""
    missing = [
        kind
        for kind, built in (("cuda", torch.backends.cuda.is_built()), ("mps", torch.backends.mps.is_built()))
        if not built
    ]
    assert missing, "a build has CUDA or MPS, never both"
    for kind in missing:
        with pytest.raises(ValueError, match=rf"'{kind}' is not in this build of PyTorch .*cpu"):
            choose_backend(kind)


def test_auto_turns_to_the_accelerator_once_it_is_in_use():
    """The first look after the accelerator appears goes to it; installation moves along, and nothing searches on."""
    found: list[Backend] = []
    searches: list[int] = []

    def find() -> Backend | None:
        searches.append(1)
        return found[0] if found else None

    backend = AutoBackend(find)
    backend.install()
    assert backend.device == "cpu"
    assert backend.total_bytes is None and backend.limit_bytes is None
    assert backend.boundary() == MemoryStats()
    assert backend.read_slow().host_rss_bytes is not None
    fake = FakeBackend()
    found.append(fake)
    assert backend.boundary().allocated_bytes == 2
    assert (backend.device, backend.name, backend.total_bytes, backend.limit_bytes) == ("fake:0", "Fake", 1000, 1000)
    assert backend.read().allocated_bytes == 1
    assert backend.read_slow().device_total_bytes == 1000
    assert backend.empty_cache() == 3
    assert backend.measures_peaks
    count = len(searches)
    backend.boundary()
    backend.remove()
    assert len(searches) == count
    assert fake.calls == ["install", "remove"]


def test_auto_follows_who_knows_the_device():
    """An integration that knows the model's device ends the search."""
    backend = AutoBackend(lambda: FakeBackend())
    host = HostBackend()
    backend.follow(host)
    assert backend.device == "cpu"
    assert backend.total_bytes == host.total_bytes is not None


def test_auto_stands_aside_once_it_knows_the_device():
    """Marks go through "auto" while it searches, and to the device itself from then on; what they tell is the same."""
    fake, found = FakeBackend(), []
    backend = AutoBackend(lambda: found[0] if found else None)
    assert backend.settled() is backend
    found.append(fake)
    mark = backend.mark()
    assert backend.settled() is fake
    assert backend.stats(mark) == fake.stats(fake.mark()) == MemoryStats(allocated_bytes=2)
    without = AutoBackend(lambda: None)
    without.settle()
    assert isinstance(without.settled(), HostBackend)
