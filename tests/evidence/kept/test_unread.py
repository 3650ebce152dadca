"""What is kept through training though no operator reads it there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.kept.unread import UnreadProbe
from memguard.records.facts import UnreadStorages
from memguard.records.stats import Stage
from memguard.text.units import MIB
from tests.backends.virtual_gpu import virtual_gpu
from tests.evidence.loop import Loop, record_of


class Sampler:
    """Keeps something of a roll-out."""

    kept: torch.Tensor | None = None
    parked: dict[int, torch.Tensor]


def train(
    use: Callable[[Sampler, int], object], *, rounds: int = 2, reads: bool = True, unheard: int = 0, ends: bool = False
) -> list[UnreadStorages]:
    """Roll-outs that leave 4 MiB in an attribute, each with a step of four micro-batches after it.

    Of each roll-out some batches go unheard; the run may end after the last step.
    """
    net, sampler = nn.Linear(8, 8), Sampler()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with virtual_gpu() as gpu, Loop(net, kinds=[UnreadProbe], uses=gpu.backend.uses) as loop:
        loop.record = record_of(allocated_peak_bytes=8 * MIB)
        for _ in range(rounds):
            for _ in loop.batches(2, Stage.VALIDATION):
                with torch.no_grad():
                    net(torch.randn(2, 8))
                sampler.kept = torch.zeros(MIB)
                if reads:
                    sampler.kept.sum()
            sampler.parked = {}
            loop.watch.batches += unheard
            for number in loop.batches(4):
                net(torch.randn(2, 8)).sum().backward()
                use(sampler, number)
                if number == 3:
                    optimizer.step()
                    optimizer.zero_grad()
        if ends:
            loop.probes.run_end()
            loop.facts += loop.probes.take()
        return loop.of(UnreadStorages)


def test_what_a_roll_out_leaves_is_reported_when_the_next_replaces_it() -> None:
    """With the attribute, its bytes, and the training forwards that it was kept through."""
    (fact,) = train(lambda sampler, number: None)
    assert (fact.place.holder, fact.bytes, fact.forwards) == ("Sampler.kept", 4 * MIB, 4)
    assert not fact.within_step


def test_what_training_reads_is_not() -> None:
    """Once in a step is enough."""
    assert train(lambda sampler, number: number == 1 and sampler.kept.mean()) == []  # type: ignore[union-attr]


def test_what_nothing_ever_read_is_kept_for_a_later_day() -> None:
    """The best weights so far, say; nor is it news that something is still there."""
    assert train(lambda sampler, number: None, reads=False) == []
    assert train(lambda sampler, number: None, rounds=1) == []


def test_a_roll_out_that_is_heard_in_part_is_followed() -> None:
    """Nobody hears each of a hundred tokens: what was used among them was used before training went on."""
    (fact,) = train(lambda sampler, number: None, unheard=90)
    assert (fact.place.holder, fact.bytes) == ("Sampler.kept", 4 * MIB)


def test_what_is_unread_as_the_run_ends_may_be_a_result() -> None:
    """Nobody knows what a program does with its variables after the training."""
    assert train(lambda sampler, number: None, rounds=1, ends=True) == []


class Phases:
    """Trains one network, then another, each with its own optimizer."""

    def __init__(self, *networks: nn.Module) -> None:
        self.pretraining, self.training = [torch.optim.Adam(network.parameters()) for network in networks]


def states_unread(*, returns: bool, peak_bytes: int = 20 * MIB) -> list[UnreadStorages]:
    """Steps of one optimizer, then of another; the first one may step again at the end."""
    large, small = nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 8)
    phases = Phases(large, small)
    with virtual_gpu() as gpu, Loop(large, small, kinds=[UnreadProbe], uses=gpu.backend.uses) as loop:
        loop.record = record_of(allocated_peak_bytes=peak_bytes)
        order = [phases.pretraining] * 4 + [phases.training] * 12 + [phases.pretraining] * returns
        for number in loop.batches(len(order)):
            small(large(torch.randn(2, 1024))).sum().backward()
            order[number].step()
        loop.probes.run_end()
        loop.facts += loop.probes.take()
        return loop.of(UnreadStorages)


def test_states_of_an_optimizer_that_steps_no_more_are_reported() -> None:
    """With the attribute that has it, its moments and its count of steps, and the advice to let it go."""
    (fact,) = states_unread(returns=False)
    assert (fact.place.holder, fact.bytes) == ("Phases.pretraining", 8 * MIB + 4)
    assert fact.remedy is not None and "optimizer" in fact.remedy


@pytest.mark.parametrize(("peak_bytes", "reported"), [(100 * MIB, 1), (200 * MIB, 0)])
def test_such_states_are_worth_a_remark_from_a_twentieth_of_the_peak(peak_bytes: int, reported: int) -> None:
    """An optimizer that never steps again is certain evidence; a small part of the peak is not worth a word."""
    assert len(states_unread(returns=False, peak_bytes=peak_bytes)) == reported


def test_an_optimizer_that_steps_again_was_needed() -> None:
    """A discriminator that waits for its turn, say."""
    assert states_unread(returns=True) == []


def test_what_micro_batches_put_aside_is_theirs() -> None:
    """It is read in its own micro-batch, and never again until the step is over."""

    def park(sampler: Sampler, number: int) -> None:
        assert sampler.kept is not None
        sampler.kept.mean()
        sampler.parked[number] = torch.zeros(MIB // 4)
        sampler.parked[number].mean()

    (fact,) = train(park)
    assert (fact.place.holder, fact.within_step, fact.forwards) == ("Sampler.parked", True, 3)
