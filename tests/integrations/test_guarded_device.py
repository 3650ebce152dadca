import contextlib
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.recording.reader import Recording, find_recordings
from tests.hooks import hooks_on


def test_the_guarded_device_is_asked_like_torch_cuda(tmp_path: Path) -> None:
    """Bytes, exact, on the virtual device."""
    with memguard.watch(device="virtual:1GiB", logdir=tmp_path, quiet=True) as guard:
        before = memguard.memory_allocated()
        for _ in guard.batches([1]):
            kept, gone = torch.empty(1024, 1024), torch.empty(4096, 1024)
            del gone
        after = memguard.memory_allocated()
        assert after - before == 4 * 1024**2
        assert memguard.max_memory_allocated() - before == 20 * 1024**2
        assert memguard.max_memory_reserved() >= memguard.memory_reserved() >= after
        del kept


def test_without_a_guard_there_is_nothing_to_ask() -> None:
    """The error says where to ask."""
    with pytest.raises(memguard.MemGuardError, match="no guard is open"):
        memguard.memory_allocated()


def test_a_device_that_does_not_tell_says_so(tmp_path: Path) -> None:
    """RAM has no allocated bytes."""
    with (
        memguard.watch(device="cpu", logdir=tmp_path, quiet=True),
        pytest.raises(memguard.MemGuardError, match="virtual:24GiB"),
    ):
        memguard.memory_allocated()


def test_what_exists_already_may_not_fit_the_virtual_device(tmp_path: Path) -> None:
    """The error is PyTorch's own, at the door; nothing is left behind."""
    existing = torch.zeros(16, 1024, 1024)
    model = torch.nn.Linear(2, 2)
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 64\.00 MiB"):
        memguard.watch(model, device="virtual:32MiB", logdir=tmp_path, quiet=True).__enter__()
    assert not hooks_on(model)
    assert torch.ones(2).sum() == 2 and existing.numel()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    """Only the process that began the run records it."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        child = os.fork()
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        if child == 0:
            guard.close()
            os._exit(len(guard.records))
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    recordings = find_recordings(tmp_path)
    assert len(recordings) == 1 and len(Recording.open(recordings[0])) == 1


@pytest.mark.parametrize("passed", [True, False])
def test_an_optimizer_that_is_passed_to_watch_is_foretold_like_one_that_is_found(tmp_path: Path, passed: bool) -> None:
    """Before its first step, which fits; the second batch with its state does not."""
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    with memguard.watch(
        model, *([optimizer] if passed else []), device="virtual:110MiB", logdir=tmp_path, quiet=True
    ) as guard:
        for _ in range(2):
            optimizer.zero_grad()
            with contextlib.suppress(torch.OutOfMemoryError):
                model(torch.randn(2048, 1024)).square().mean().backward()
            optimizer.step()
    messages = [finding.message for finding in guard.findings if finding.code == "MG502"]
    assert len(messages) == 1 and "the first Adam step will allocate 32.0 MiB of state" in messages[0]
