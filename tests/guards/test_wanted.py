"""Programs that need gradients in eval mode after an ordinary training and evaluation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.guards.no_grad import whither
from memguard.source.fate import Fate
from tests.integrations.programs import batches, gradients, net

Pair = tuple[torch.Tensor, torch.Tensor]
cross_entropy = functional.cross_entropy


def by_generator(model: nn.Module) -> None:
    def predictions() -> Iterator[Pair]:
        for x, y in batches(3):
            yield model(x), y

    for out, y in predictions():
        cross_entropy(out, y).backward()


def by_generator_and_penalty(model: nn.Module) -> None:
    """Where the penalty has a graph of its own, no error would tell of the term that is lost."""

    def predictions() -> Iterator[Pair]:
        for x, y in batches(3):
            yield model(x), y

    for out, y in predictions():
        penalty = sum(parameter.square().sum() for parameter in model.parameters())
        (cross_entropy(out, y) + 1e-3 * penalty).backward()


def by_next(model: nn.Module) -> None:
    outputs = (model(x).square().mean() for x, _ in batches(3))
    while (loss := next(outputs, None)) is not None:
        loss.backward()


def by_iterator_class(model: nn.Module) -> None:
    class Predictions:
        def __init__(self) -> None:
            self.batches = batches(3)

        def __iter__(self) -> Predictions:
            return self

        def __next__(self) -> Pair:
            x, y = next(self.batches)
            return model(x), y

    for out, y in Predictions():
        cross_entropy(out, y).backward()


def by_closure(model: nn.Module) -> None:
    def prepared(x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
        out = model(x)

        def finish() -> None:
            cross_entropy(out, y).backward()

        return finish

    for finish in [prepared(x, y) for x, y in batches(3)]:
        finish()


def by_dispatch(model: nn.Module) -> None:
    score = {"eval": lambda x, y: cross_entropy(model(x), y)}
    handle = {"bw": lambda loss: loss.backward()}
    for x, y in batches(3):
        handle["bw"](score["eval"](*(x, y)))


def by_gather(model: nn.Module) -> None:
    async def score(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return cross_entropy(model(x), y)

    async def main() -> None:
        for loss in await asyncio.gather(*[score(x, y) for x, y in batches(3)]):
            loss.backward()

    asyncio.run(main())


def by_await(model: nn.Module) -> None:
    async def score(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(x), y)

    async def main() -> None:
        for x, y in batches(3):
            loss = await score(x, y)
            loss.backward()

    asyncio.run(main())


def by_context(model: nn.Module) -> None:
    @contextlib.contextmanager
    def scored(x: torch.Tensor, y: torch.Tensor) -> Iterator[torch.Tensor]:
        yield cross_entropy(model(x), y)

    for x, y in batches(3):
        with scored(x, y) as loss:
            loss.backward()


def by_sum_over_a_loop(model: nn.Module) -> None:
    total = torch.zeros(())
    for x, y in batches(8):
        total = total + cross_entropy(model(x), y)
    total.backward()


def by_list(model: nn.Module) -> None:
    losses: list[torch.Tensor] = []
    for x, y in batches(8):
        losses.append(cross_entropy(model(x), y))
    torch.stack(losses).mean().backward()


WAYS = [
    *(by_generator, by_generator_and_penalty, by_next, by_iterator_class, by_closure, by_dispatch, by_gather),
    *(by_await, by_context, by_sum_over_a_loop, by_list),
]
BY_SOURCE = [way for way in WAYS if way not in (by_dispatch, by_gather)]
"""Those that are read to their backward, and not watched: several ranks go by these alone."""


def ordinary(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for x, y in batches(3):
        cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    for x, y in batches(3):
        loss = cross_entropy(model(x), y)
        assert not loss.isnan()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_evaluation_that_goes_to_a_backward_trains_as_without_memguard(
    way: Callable[[nn.Module], None], ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an ordinary evaluation without no_grad, which is guarded."""
    if ranks == 2:
        if way not in BY_SOURCE:
            pytest.skip("watched, which several ranks do not")
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("RANK", "1")
    results: list[list[torch.Tensor]] = []
    for guarded in (False, True):
        torch.manual_seed(0)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        guard = memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) if guarded else contextlib.nullcontext()
        with guard:
            for _ in range(2):
                ordinary(model, optimizer)
                way(model)
                optimizer.step()
        results.append([*gradients(model), *(parameter.detach().clone() for parameter in model.parameters())])
        if guarded:
            told = {finding.function for finding in guard.findings if finding.code in ("MG001", "MG201")}
            assert told == {"ordinary"}
    assert all(map(torch.equal, *results))


def test_what_a_task_returns_is_for_whoever_awaits_it() -> None:
    """The event loop is no caller that could be read; a coroutine that awaits it on the spot is."""

    async def score() -> Fate:
        return whither()[0]

    async def gathered() -> list[Fate]:
        return await asyncio.gather(score(), score())

    async def awaited() -> None:
        fate = await score()
        assert fate is Fate.UNUSED

    assert asyncio.run(gathered()) == [Fate.ESCAPES, Fate.ESCAPES]
    asyncio.run(awaited())


def test_what_a_program_without_source_gets_may_go_anywhere() -> None:
    """Its graph is watched before it is cut."""
    names: dict[str, Any] = {"whither": whither}
    exec("fate, _ = whither()", names)
    assert names["fate"] is Fate.ESCAPES


def test_what_a_place_stores_is_counted_there() -> None:
    """Also where it is returned as well: the callers of one evaluation share its place."""
    kept: list[object] = []

    def evaluate() -> object:
        kept.append(answer := whither())
        return answer

    first, second = evaluate(), evaluate()
    assert first == second
    assert kept == [first, second]
