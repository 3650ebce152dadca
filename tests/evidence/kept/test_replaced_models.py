"""Copies of a model that wait on the device until they are replaced by new ones."""

from __future__ import annotations

import copy
from collections.abc import Callable
from weakref import WeakSet

import pytest
from torch import nn, rand

from memguard.evidence.kept.repeated_models import MANY, ReplacedModelsProbe
from memguard.records.facts import ModelCopies
from tests.evidence.loop import Loop

CLIENTS, ROUNDS = 10, 4


class Client:
    """Trains a copy of its own in each round."""

    def __init__(self) -> None:
        self.model: nn.Module = nn.Identity()
        self.models: dict[str, nn.Module] = {}

    def attribute(self, model: nn.Module) -> nn.Module:
        self.model = copy.deepcopy(model)
        return self.model

    def key(self, model: nn.Module) -> nn.Module:
        self.models["own"] = copy.deepcopy(model)
        return self.models["own"]

    def dropped(self, model: nn.Module) -> nn.Module:
        return copy.deepcopy(model)

    def own(self, model: nn.Module) -> nn.Module:
        """Goes on with what it has."""
        if not isinstance(self.model, nn.Sequential):
            self.model = copy.deepcopy(model)
        return self.model


def facts_of(
    take: Callable[[Client, nn.Module], nn.Module], *, revisits: bool = False, rounds: int = ROUNDS
) -> list[ModelCopies]:
    """What is told of clients that take a model each and train it, two batches each."""
    server = nn.Sequential(nn.Linear(256, 512), nn.Linear(512, 256))
    served = copy.deepcopy(server)  # a watched one's hooks here cannot be copied
    clients = [Client() for _ in range(CLIENTS)]
    known: WeakSet[nn.Module] = WeakSet()
    with Loop(served, kinds=[ReplacedModelsProbe]) as loop:
        for _ in range(rounds):
            for client in clients:
                model = take(client, server)
                if model not in known:
                    loop.add(model)
                known.add(model)
                for _ in loop.batches(2):
                    model(rand(4, 256)).sum().backward()
                model.zero_grad()
            for client in clients if revisits else ():
                for _ in loop.batches(1):
                    client.model(rand(4, 256))
            for _ in loop.batches(1):
                served(rand(4, 256))
    return loop.of(ModelCopies)


@pytest.mark.parametrize(("take", "name"), [(Client.attribute, "Client.model"), (Client.key, "Client.models")])
def test_copies_that_wait_to_be_replaced_are_told(take: Callable[[Client, nn.Module], nn.Module], name: str) -> None:
    """At the statement that copies, though the server's own model is called again and again."""
    (fact,) = facts_of(take)
    assert fact.earlier and fact.replaced and (fact.place.holder or "").startswith(name)
    assert "copy.deepcopy(model)" in (fact.place.source or "")
    assert MANY <= fact.copies <= CLIENTS
    assert fact.bytes == fact.copies * 4 * (256 * 512 * 2 + 512 + 256)


@pytest.mark.parametrize("take", [Client.dropped, Client.own])
def test_copies_that_go_or_go_on_are_not_told(take: Callable[[Client, nn.Module], nn.Module]) -> None:
    """One that ends with its turn, and those of clients that each train their own further."""
    assert facts_of(take) == []


def test_copies_that_are_called_after_others_are_not_told() -> None:
    """As those of which a vote is taken: they are in use."""
    assert facts_of(Client.attribute, revisits=True) == []


def test_one_round_says_nothing() -> None:
    """They may all be used later."""
    assert facts_of(Client.attribute, rounds=1) == []
