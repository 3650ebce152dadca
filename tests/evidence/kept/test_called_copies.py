"""Copies of the weights that are called as models: a league grows, a population does not."""

from collections import deque

import pytest
import torch
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOutputs, ModelCopies
from tests.evidence.loop import Loop


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))


def copied(agent: nn.Module) -> nn.Module:
    copy = make()
    copy.load_state_dict(agent.state_dict())
    return copy


class League:
    """Earlier selves to play against."""

    def __init__(self) -> None:
        self.players: list[nn.Module] = []

    def admit(self, agent: nn.Module) -> nn.Module:
        self.players.append(copied(agent))
        return self.players[-1]


class Rated:
    """Each with a name and a score."""

    def __init__(self) -> None:
        self.rated: dict[int, dict[str, object]] = {}

    def admit(self, agent: nn.Module) -> nn.Module:
        player = copied(agent)
        self.rated[len(self.rated)] = {"score": 0.0, "player": player}
        return player


class Pool:
    """The newest of them."""

    def __init__(self) -> None:
        self.pool: list[nn.Module] = []

    def admit(self, agent: nn.Module) -> nn.Module:
        self.pool.append(copied(agent))
        if len(self.pool) > 24:
            self.pool.pop(0)
        return self.pool[-1]


def play(league: League | Rated | Pool, *, train: bool = False) -> Loop:
    agent = make()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    opponents: deque[nn.Module] = deque(maxlen=3)
    own: list[torch.optim.Optimizer] = []
    with Loop(agent, kinds=[ScansProbe]) as loop:
        for index in loop.batches(72):
            if index % 2:
                opponents.append(league.admit(agent))
                loop.add(opponents[-1])
                own += [torch.optim.SGD(opponents[-1].parameters(), lr=0.1)] if train else []
            optimizer.zero_grad()
            loss = agent(torch.randn(4, 8)).sum()
            for opponent in opponents:
                loss = loss + opponent(torch.randn(4, 8)).sum() * (1.0 if train else 0.0)
            loss.backward()
            for one in (optimizer, *own[-3:]):
                one.step()
    return loop


@pytest.mark.parametrize(("kind", "holder"), [(League, "League.players"), (Rated, "Rated.rated")])
def test_opponents_that_only_come_are_copies(kind: type[League | Rated], holder: str) -> None:
    """Though each is called; what the list grows by is told with them."""
    loop = play(kind())
    told = loop.of(ModelCopies)
    assert told and {fact.place.holder for fact in told} == {holder} and told[-1].copies >= 16
    assert told[-1].place.function == f"{kind.__name__}.admit"
    assert {fact.place.holder for fact in loop.of(KeptOutputs)} <= {holder}


def test_a_pool_with_a_limit_is_silent() -> None:
    """And so are members that were trained: they have changed since they were made."""
    assert play(Pool()).of(ModelCopies) == []
    assert play(League(), train=True).of(ModelCopies) == []
