import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.backends.host import ChildrenMemory, HostBackend, HostLimit, HostMemory, host_limit
from memguard.records.stats import MemoryStats

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's proc file system")

MIB = 2**20
GIB = 2**30


def test_rss_follows_what_the_process_touches():
    """Resident memory rises by what is touched."""
    host = HostMemory()
    before = host.rss_bytes()
    with mmap.mmap(-1, 64 * MIB) as touched:
        touched.write(b"x" * (64 * MIB))
        after = host.rss_bytes()
    assert before is not None and after is not None
    assert 60 * MIB < after - before < 140 * MIB


def test_the_host_backend_does_not_pretend_to_know_tensors():
    """On the CPU nothing is counted by an allocator: looks are all unknown, the slow statistics speak."""
    backend = HostBackend()
    assert backend.device == "cpu"
    assert backend.read() == backend.boundary() == MemoryStats()
    assert not backend.measures_peaks
    assert backend.empty_cache() is None
    slow = backend.read_slow()
    assert slow.host_rss_bytes is not None and slow.host_rss_peak_bytes is not None
    assert 0 < slow.host_rss_bytes <= slow.host_rss_peak_bytes + MIB
    assert slow.host_limit_bytes == backend.total_bytes
    assert slow.device_used_bytes is None and slow.pinned_bytes is None
    assert slow.open_files is not None and slow.open_files > 2


@linux
def test_open_files_are_counted():
    """Each file opened counts once."""
    host = HostMemory()
    before = host.read_slow().open_files
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    after = host.read_slow().open_files
    for number in opened:
        os.close(number)
    assert before is not None and after == before + 5


@linux
def test_a_host_memory_gives_its_file_back():
    """What it keeps open to be fast it closes when told, and not when the collector comes by."""
    before = len(os.listdir("/proc/self/fd"))
    host = HostMemory()
    slow = host.rss_bytes()
    assert len(os.listdir("/proc/self/fd")) == before
    host.install()
    host.install()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    fast = host.rss_bytes()
    assert slow and fast and abs(fast - slow) < 1 << 24
    host.remove()
    host.remove()
    assert len(os.listdir("/proc/self/fd")) == before


def test_children_that_nobody_can_list_are_unknown(tmp_path, monkeypatch):
    """Neither the kernel's list nor psutil's can be read: that ends no slow lane."""
    monkeypatch.setattr(os, "listdir", lambda path: (_ for _ in ()).throw(OSError(5, "broken disk")))
    assert ChildrenMemory(proc=tmp_path).read() == (None, None)


@linux
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_report_its_parent():
    """The open file belongs to the parent, so a child gets no number from it."""
    host = HostMemory()
    child = os.fork()
    if child == 0:
        os._exit(0 if host.rss_bytes() is None else 1)
    assert os.waitpid(child, 0)[1] == 0


def group(folder: Path, limit: str, used: int, cache: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")


def proc(folder: Path, cgroup: str) -> Path:
    (folder / "proc" / "self").mkdir(parents=True)
    (folder / "proc" / "self" / "cgroup").write_text(cgroup)
    return folder / "proc"


def test_the_limit_of_the_group_counts_and_cache_that_can_go_does_not(tmp_path):
    """In a group with a limit, that is where the kernel kills; reclaimable page cache is not use."""
    group(tmp_path / "groups/job", str(GIB // 8), 100 * MIB, cache=30 * MIB)
    assert host_limit(proc(tmp_path, "0::/job\n"), tmp_path / "groups") == HostLimit(GIB // 8, 70 * MIB)


def test_the_group_with_least_left_is_met_first(tmp_path):
    """A roomy group inside a nearly full one does not help."""
    group(tmp_path / "groups/slice", str(100 * MIB), 95 * MIB)
    group(tmp_path / "groups/slice/job", str(50 * MIB), 10 * MIB)
    group(tmp_path / "groups/slice/job/leaf", "max", 10 * MIB)
    limit = host_limit(proc(tmp_path, "0::/slice/job/leaf\n"), tmp_path / "groups")
    assert limit == HostLimit(100 * MIB, 95 * MIB)
    assert limit.available_bytes == 5 * MIB


def test_inside_a_container_the_mounted_root_is_the_group(tmp_path):
    """A path of the host's that is not mounted in the container leads up to the root, whose limit counts."""
    group(tmp_path / "groups", str(64 * MIB), 8 * MIB)
    limit = host_limit(proc(tmp_path, "0::/../../docker/abc\n"), tmp_path / "groups")
    assert limit == HostLimit(64 * MIB, 8 * MIB)


def test_groups_of_version_1_are_read_too(tmp_path):
    """The older kind has other file names, and a huge number for no limit."""
    for name, limit in (("", 9223372036854771712), ("job", 64 * MIB)):
        folder = tmp_path / "groups/memory" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        (folder / "memory.usage_in_bytes").write_text(str(20 * MIB))
        (folder / "memory.stat").write_text(f"cache 5\ntotal_inactive_file {4 * MIB}\n")
    found = host_limit(proc(tmp_path, "5:cpu,cpuacct:/\n9:memory:/job\n1:name=systemd:/x\n"), tmp_path / "groups")
    assert found == HostLimit(64 * MIB, 16 * MIB)


def test_without_groups_all_ram_is_the_limit(tmp_path):
    """No control group, or one without a limit: the machine's memory is what there is."""
    group(tmp_path / "groups/job", "max", 100 * MIB)
    machine = host_limit(tmp_path / "none", tmp_path / "none")
    assert machine.limit_bytes is not None and machine.used_bytes is not None and machine.limit_bytes > GIB
    assert host_limit(proc(tmp_path, "0::/job\nnonsense\n"), tmp_path / "groups").limit_bytes == machine.limit_bytes


@linux
def test_children_are_counted_with_their_private_memory():
    """What a child process keeps for itself is told; without children it is zero."""
    children = ChildrenMemory()
    before = children.read().number
    program = f"x = bytearray({40 * MIB}); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        reading = children.read()
        child.communicate(b"\n")
    assert before is not None and reading.number == before + 1
    assert reading.private_bytes is not None and 40 * MIB <= reading.private_bytes < 100 * MIB
    assert children.read().number == before


def fake_children(folder: Path, pids: dict[int, int]) -> Path:
    (folder / "self/task/1").mkdir(parents=True, exist_ok=True)
    (folder / "self/task/1/children").write_text(" ".join(map(str, pids)) + " ")
    for pid, kib in pids.items():
        (folder / str(pid)).mkdir(exist_ok=True)
        (folder / str(pid) / "smaps_rollup").write_text(
            f"55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 999 kB\nPrivate_Clean: {kib} kB\nPrivate_Dirty: {kib} kB\n"
        )
    return folder


def test_a_dear_reading_of_the_children_is_not_repeated_at_once(tmp_path):
    """A reading stands for a hundred times its duration, unless children come or go."""
    ticks = iter([0.0, 1.0, 50.0, 102.0, 103.0, 104.0, 105.0])
    children = ChildrenMemory(proc=fake_children(tmp_path, {70001: 1, 70002: 2}), clock=lambda: next(ticks))
    assert children.read() == (2, 6 * 1024)
    fake_children(tmp_path, {70001: 5, 70002: 5})
    assert children.read() == (2, 6 * 1024)
    assert children.read() == (2, 20 * 1024)
    fake_children(tmp_path, {70001: 7})
    assert children.read() == (1, 14 * 1024)
