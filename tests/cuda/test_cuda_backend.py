import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from memguard.backends.auto import AutoBackend
from memguard.backends.choose import choose_backend
from memguard.backends.cuda import CudaBackend
from memguard.records.stats import MemoryStats

pytestmark = pytest.mark.cuda

MIB = 2**20
ROOT = Path(__file__).parents[2]


@pytest.fixture
def empty() -> Iterator[None]:
    """An initialised device without memory of ours."""
    torch.cuda.init()
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


def block(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def run(program: str, **environment: str) -> str:
    """What a fresh process prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_touches_cuda_before_the_user_does():
    """Every look at an uninitialised device is all unknown and leaves it so; the first look after is live."""
    run(
        """
        import torch
        from memguard.backends.choose import choose_backend
        from memguard.records.stats import MemoryStats

        made = [choose_backend(device, peaks="shared") for device in ("auto", "cuda", "cuda:0")]
        for backend in made:
            backend.install()
            assert backend.read() == backend.boundary() == MemoryStats()
            assert backend.total_bytes is None and backend.limit_bytes is None
            slow = backend.read_slow()
            assert slow.device_used_bytes is None and slow.host_rss_bytes > 0
            assert backend.empty_cache() is None
        assert [b.device for b in made] == ["cpu", "cuda", "cuda:0"]
        assert not torch.cuda.is_initialized()
        x = torch.empty(2**20, device="cuda")
        for backend in made:
            assert backend.boundary().allocated_bytes == 2**22
            assert backend.device == "cuda:0" and backend.total_bytes > 0 and backend.name
            backend.remove()
        """
    )


def test_a_forked_child_hears_nothing():
    """In a forked child, where CUDA is out of reach, a backend of the parent's answers with unknowns."""
    run(
        """
        import os, torch
        from memguard.backends.cuda import CudaBackend
        from memguard.records.stats import MemoryStats

        torch.cuda.init()
        backend = CudaBackend()
        backend.install()
        backend.boundary()
        child = os.fork()
        if child == 0:
            os._exit(0 if backend.read() == backend.boundary() == MemoryStats() else 1)
        assert os.waitpid(child, 0)[1] == 0
        """
    )


def test_the_async_allocator_s_zeros_are_unknown():
    """The driver's allocator counts allocated and reserved bytes with their peaks; what it leaves at zero is None."""
    run(
        """
        import torch
        from memguard.backends.cuda import CudaBackend

        backend = CudaBackend()
        backend.install()
        big = torch.empty(2**28, dtype=torch.uint8, device="cuda")
        small = torch.empty(2**20, dtype=torch.uint8, device="cuda")
        stats = backend.boundary()
        whole = torch.cuda.memory_allocated()
        assert stats.allocated_bytes == stats.allocated_peak_bytes == whole >= 2**28 + 2**20, stats
        del big
        torch.cuda.synchronize()  # the driver gives it back in the stream's order
        assert backend.boundary().allocated_peak_bytes == whole
        stats = backend.boundary()
        assert stats.allocated_bytes == torch.cuda.memory_allocated() < 2**28, stats
        assert stats.allocated_peak_bytes < 2**28 and torch.cuda.max_memory_allocated() == whole
        assert stats.inactive_split_bytes is stats.num_ooms is stats.num_alloc_retries is None
        assert stats.num_device_alloc is stats.num_device_free is None
        """,
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
    )


def test_expandable_segments_do_not_count_splits():
    """With expandable segments inactive splits are unknown, since the allocator does not count them there."""
    run(
        """
        import torch
        from memguard.backends.cuda import CudaBackend

        torch.cuda.init()
        backend = CudaBackend()
        x = torch.empty(2**20, device="cuda")
        assert backend.read().inactive_split_bytes is None
        assert backend.read().allocated_bytes == 2**22
        """,
        PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True",
    )


def test_numbers_are_those_of_torch(empty):
    """A look agrees with torch's own functions."""
    backend = CudaBackend()
    kept = [block(30 * MIB), block(512)]
    stats = backend.read()
    flat = torch.cuda.memory_stats()
    assert stats.allocated_bytes == torch.cuda.memory_allocated() >= 30 * MIB
    assert stats.reserved_bytes == torch.cuda.memory_reserved()
    assert stats.active_bytes == flat["active_bytes.all.current"]
    assert stats.inactive_split_bytes == flat["inactive_split_bytes.all.current"]
    assert stats.num_device_alloc is not None and stats.num_device_alloc > 0
    assert backend.total_bytes == torch.cuda.get_device_properties(0).total_memory
    del kept


def test_counters_only_grow_though_somebody_resets_them(empty):
    """After reset_accumulated_memory_stats the counters go on from where they were."""
    backend = CudaBackend()
    block(30 * MIB)
    torch.cuda.empty_cache()
    before = backend.read()
    torch.cuda.reset_accumulated_memory_stats()
    assert backend.read().num_device_alloc == before.num_device_alloc
    block(30 * MIB)
    after = backend.read()
    assert before.num_device_alloc is not None and after.num_device_alloc == before.num_device_alloc + 1


def test_empty_cache_tells_what_it_gave_back(empty):
    """The bytes given back are those by which reserved memory fell."""
    backend = CudaBackend()
    kept = block(10 * MIB)
    block(60 * MIB)
    reserved = torch.cuda.memory_reserved()
    assert backend.empty_cache() == reserved - torch.cuda.memory_reserved() >= 60 * MIB
    assert backend.empty_cache() == 0
    del kept


def test_the_limit_is_the_fraction_left_to_the_process(empty):
    """A per-process memory fraction shows in the limit, not in the capacity."""
    backend = CudaBackend()
    assert backend.limit_bytes == backend.total_bytes
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        assert backend.total_bytes is not None and backend.limit_bytes == backend.total_bytes // 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_an_out_of_memory_error_is_counted(empty):
    """A failed allocation shows in num_ooms, and a retry in num_alloc_retries."""
    backend = CudaBackend()
    before = backend.read()
    with pytest.raises(torch.OutOfMemoryError):
        block(2**50)
    after = backend.read()
    assert before.num_ooms is not None and after.num_ooms == before.num_ooms + 1


def test_a_device_that_does_not_exist_stays_unknown(caplog):
    """A number beyond the devices is said once, and then all is unknown; nothing raises."""
    torch.cuda.init()
    backend = CudaBackend(7)
    backend.install()
    assert backend.boundary() == backend.boundary() == MemoryStats()
    assert not backend.measures_peaks
    assert backend.read_slow().device_total_bytes is None
    backend.remove()
    assert len(caplog.records) == 1
    assert "cuda:7" in caplog.text


def test_the_slow_lane_sees_the_whole_device(empty):
    """Use by all processes is at least what this one reserved, and at most the capacity."""
    backend = CudaBackend()
    backend.read()
    kept = block(100 * MIB)
    pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    slow = backend.read_slow()
    assert slow.device_total_bytes == backend.total_bytes
    assert slow.device_used_bytes is not None and slow.device_total_bytes is not None
    assert torch.cuda.memory_reserved() <= slow.device_used_bytes <= slow.device_total_bytes
    if hasattr(torch._C, "_cuda_hostMemoryStats"):
        assert slow.pinned_bytes is not None and slow.pinned_bytes >= 3 * MIB
    del kept, pinned


def test_the_slow_lane_tells_other_processes_from_ours():
    """On a device that others use too, their bytes and process ids are told apart from ours."""
    pytest.importorskip("pynvml")
    if "nullgpu" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("needs a device whose other processes are known")
    run(
        """
        import torch
        from memguard.backends.cuda import CudaBackend

        backend = CudaBackend()
        x = torch.empty(2**26, dtype=torch.uint8, device="cuda")
        backend.read()
        slow = backend.read_slow()
        assert slow.other_processes == ((4242, 2**30),), slow
        assert slow.process_used_bytes == 2**26 + 400 * 2**20, slow
        assert slow.device_used_bytes == 2**30 + 2**26 + 400 * 2**20, slow
        """,
        NULLGPU_OTHER="1G",
        NULLGPU_CONTEXT="400M",
    )


def test_the_slow_lane_counts_process_groups_that_use_nccl():
    """Unknown before there are any, and once they are destroyed."""
    run(
        """
        import torch, torch.distributed as dist
        from memguard.backends.cuda import CudaBackend

        backend = CudaBackend()
        x = torch.empty(8, device="cuda")
        backend.read()
        assert backend.read_slow().process_groups is None
        dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
        assert backend.read_slow().process_groups == 1
        dist.destroy_process_group()
        assert backend.read_slow().process_groups is None
        """
    )


def test_devices_are_matched_by_uuid_not_by_index():
    """With CUDA_VISIBLE_DEVICES the driver's device is the one that torch uses, whatever its number."""
    pytest.importorskip("pynvml")
    if "nullgpu" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("needs two devices")
    run(
        """
        import pynvml, torch
        from memguard.backends.nvml import NvmlDevice

        torch.cuda.init()
        properties = torch.cuda.get_device_properties(0)
        device = NvmlDevice(properties)
        found = pynvml.nvmlDeviceGetUUID(device._handle)
        assert str(properties.uuid) in (found if isinstance(found, str) else found.decode()), found
        x = torch.empty(2**26, dtype=torch.uint8, device="cuda")
        assert device.read().process_bytes >= 2**26
        """,
        NULLGPU_DEVICES="2",
        CUDA_VISIBLE_DEVICES="1",
    )


def test_auto_turns_to_the_device_in_use(empty):
    """Once CUDA is initialised "auto" is the current device."""
    backend = choose_backend("auto", peaks="shared")
    assert isinstance(backend, AutoBackend)
    assert backend.device == "cuda:0"
    assert backend.total_bytes == torch.cuda.get_device_properties(0).total_memory
