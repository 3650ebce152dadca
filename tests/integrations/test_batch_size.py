"""find_batch_size and retry_on_oom, with steps that fail beyond a known size."""

from __future__ import annotations

import socket
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.errors import MemGuardError


class Step:
    """Fits up to a size; keeps count of what was asked."""

    def __init__(self, most: int, *, later: int | None = None) -> None:
        self.most, self.later = most, later
        self.asked: list[int] = []

    def __call__(self, size: int) -> None:
        self.asked.append(size)
        most = self.most if self.later is None or len(self.asked) % 3 != 0 else self.later
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("most", [1, 2, 7, 64, 100, 1000, 5000])
@pytest.mark.parametrize("start", [1, 64])
def test_it_finds_the_largest(most: int, start: int) -> None:
    """From below or above it ends within a few percent of the largest that fits, and never above it."""
    found = memguard.find_batch_size(Step(most), start, margin=0.0)
    assert 0.96 * most - 1 <= found <= most


def test_margin() -> None:
    """The margin is taken off."""
    assert memguard.find_batch_size(Step(1000), 64, margin=0.1) <= 900


def test_several_steps_must_fit() -> None:
    """A size of which only the first steps fit does not count."""
    assert memguard.find_batch_size(Step(1000, later=200), 64) <= 200


def test_maximum() -> None:
    """Where everything fits, the maximum is the answer."""
    assert memguard.find_batch_size(Step(10**9), 64, maximum=100, margin=0.0) == 100


def test_nothing_fits() -> None:
    """If not even one sample fits, that is said."""
    with pytest.raises(MemGuardError, match="does not fit even with a batch of 1"):
        memguard.find_batch_size(Step(0), 64)


def test_other_errors_come_through() -> None:
    """An error of another kind is the user's."""

    def step(size: int) -> None:
        raise KeyError("the step's own")

    with pytest.raises(KeyError):
        memguard.find_batch_size(step, 64)


@pytest.mark.parametrize("wrong", [{"start": 0}, {"steps": 0}, {"margin": 1.0}, {"minimum": 65}, {"maximum": 10}])
def test_arguments(wrong: dict[str, float]) -> None:
    """Impossible settings are refused with their values."""
    with pytest.raises(ValueError, match="must"):
        memguard.find_batch_size(Step(10), **{"start": 64, **wrong})  # type: ignore[call-overload]


def test_decorator() -> None:
    """The function is called again with half until it fits; its result and other arguments pass through."""
    step = Step(20)

    @memguard.retry_on_oom(start=64)
    def train(batch_size: int, word: str) -> str:
        step(batch_size)
        return f"{word} {batch_size}"

    assert train("fits") == "fits 16"
    assert step.asked == [64, 32, 16]


def test_the_decorator_gives_up_with_the_error_itself() -> None:
    """At the minimum the error is the caller's."""
    with pytest.raises(torch.OutOfMemoryError):
        memguard.retry_on_oom(start=4, minimum=2)(Step(1))()


def test_the_failed_call_is_let_go_of() -> None:
    """When the next size is tried, nothing of the failed call is alive."""
    held: list[weakref.ref[torch.Tensor]] = []

    @memguard.retry_on_oom(start=8)
    def train(batch_size: int) -> int:
        assert all(reference() is None for reference in held)
        activations = torch.zeros(1000)
        held.append(weakref.ref(activations))
        if batch_size > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return batch_size

    assert train() == 2
    assert len(held) == 3


def test_on_the_virtual_gpu(tmp_path: Path) -> None:
    """A real search: what it finds trains, and more than half as much again does not."""
    with memguard.watch(device="virtual:16MiB", logdir=str(tmp_path), quiet=True) as guard:
        model = nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.ReLU())])
        guard.add(model)
        optimizer = torch.optim.AdamW(model.parameters())

        def step(size: int) -> None:
            loss = model(torch.zeros(size, 64)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        found = memguard.find_batch_size(step, 4096)
        for _ in range(3):
            step(found)
        with pytest.raises(torch.OutOfMemoryError):
            step(3 * found // 2)


def test_every_size_begins_with_an_empty_cache(tmp_path: Path) -> None:
    """What the allocator kept of smaller and of failed sizes takes nothing from the next one."""
    reserved: dict[int, int] = {}

    def step(size: int) -> None:
        reserved.setdefault(size, memguard.memory_reserved())
        torch.zeros(size, 2**18)

    with memguard.watch(device="virtual:64MiB", logdir=str(tmp_path), quiet=True):
        memguard.find_batch_size(step, 4, margin=0.0)
    assert len(reserved) > 5
    assert max(reserved.values()) == reserved[4]


def test_all_ranks_agree(tmp_path: Path) -> None:
    """Two ranks with different room get the smaller one's answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=_rank, args=(rank, port, queue)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    found = [queue.get(timeout=60) for _ in ranks]
    for rank in ranks:
        rank.join()
    assert found[0] == found[1] <= 300


def _rank(rank: int, port: int, queue: object) -> None:
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    queue.put(memguard.find_batch_size(Step((300, 1000)[rank]), 64))  # type: ignore[attr-defined]
    torch.distributed.destroy_process_group()


def test_what_is_no_function_is_refused() -> None:
    """Such as a size in place of the function, or the decorator without its parentheses; each names the other way."""
    with pytest.raises(TypeError, match=r"got 64; .*@memguard\.retry_on_oom"):
        memguard.find_batch_size(64)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write @memguard\.retry_on_oom\(start=64\)"):
        memguard.retry_on_oom(test_what_is_no_function_is_refused)  # type: ignore[arg-type]
