"""Sparse gradients that no zero_grad takes away."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.owners import count_owners
from memguard.evidence.peaks.gradients import PilingGradientsProbe
from memguard.records.facts import Fact, PilingGradients
from memguard.torch_objects.storages import storage_key, storages_of
from tests.evidence.loop import Loop


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(1000, 16, sparse=True)
        self.score = nn.Linear(16, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.score(self.items(ids))


def train(batches: int, *, zeroes_each: int | None, micro_batches: int = 1) -> tuple[list[Fact], torch.Tensor]:
    model = Recommender()
    sparse = torch.optim.SparseAdam([model.items.weight], lr=0.01)
    dense = torch.optim.Adam(model.score.parameters(), lr=0.01)
    with Loop(model, kinds=[PilingGradientsProbe]) as loop:
        for index in loop.batches(batches):
            model(torch.randint(0, 1000, (64,))).square().mean().backward()
            if (index + 1) % micro_batches:
                continue
            dense.step()
            dense.zero_grad()
            sparse.step()
            if zeroes_each and not (index + 1) % zeroes_each:
                sparse.zero_grad()
        loop.probes.run_end()
        loop.facts += loop.probes.take()
    return loop.facts, model.items.weight


def test_a_sparse_gradient_that_is_never_zeroed_is_told_with_its_final_size() -> None:
    """By the parameter's name; the last figure is that of the end."""
    facts, weight = train(20, zeroes_each=None)
    told = [fact for fact in facts if isinstance(fact, PilingGradients)]
    assert {fact.place.holder for fact in told} == {"Recommender.items.weight.grad"}
    assert weight.grad is not None
    parts = (weight.grad._values(), weight.grad._indices())
    assert told[-1].bytes == sum(part.untyped_storage().nbytes() for part in parts) > told[0].bytes
    assert told[0].bytes_per_batch <= 64 * (8 + 16 * 4)


def test_gradients_that_are_zeroed_in_time_are_not_told() -> None:
    """In each step, after several, or once for twelve micro-batches."""
    assert not train(20, zeroes_each=1)[0]
    assert not train(40, zeroes_each=4)[0]
    assert not train(48, zeroes_each=1, micro_batches=12)[0]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_sparse_tensor_is_as_large_as_its_indices_and_values() -> None:
    """In every count; a mode of the user's does not hear of it, and no graph comes of it."""
    model = Recommender()
    model(torch.arange(4)).sum().backward()
    gradient = model.items.weight.grad
    assert gradient is not None
    assert list(storages_of([gradient]).values()) == [4 * (8 + 16 * 4)]
    assert count_owners([model]).gradients_bytes == 4 * (8 + 16 * 4) + (16 + 1) * 4
    rows, columns = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 1, 2, 3])
    compressed = torch.sparse_csr_tensor(
        rows, columns, torch.ones(4), (4, 4), requires_grad=True, check_invariants=False
    )
    assert (storage_key(compressed) or (0, 0))[1] == 4 * 4 + 5 * 8 + 4 * 8
