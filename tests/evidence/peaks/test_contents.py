from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memguard
from memguard.recording.reader import Recording, find_recordings
from memguard.records.peak_contents import MOST_ROWS, PeakContents, Row
from tests.evidence.loop import sees_saved_tensors, train_on

pytestmark = sees_saved_tensors


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Recomputed(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


class Language(nn.Module):
    def __init__(self, block: type[Block] = Block) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(300, 64), nn.Linear(64, 300)
        self.blocks = nn.Sequential(*(block(64) for _ in range(3)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(300, 96), nn.GRU(96, 96), nn.Linear(96, 300)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.embedding(tokens))[0])


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def run(
    tmp_path: Path,
    model: nn.Module,
    *,
    batches: int = 4,
    each: Callable[[Any], None] = id,
    kind: Any = torch.optim.AdamW,
) -> list[dict[str, Any]]:
    optimizer = kind(model.parameters(), lr=0.001)
    with memguard.watch(model, optimizer, device="virtual:512MiB", logdir=tmp_path, quiet=True):
        for _ in range(batches):
            tokens = torch.randint(0, 300, (8, 16))
            loss = loss_of(model, tokens)
            each(loss)
            train_on(optimizer, loss)
    return Recording.open(find_recordings(tmp_path)[0]).of_kind("contents")


def by(contents: dict[str, Any], at: int, category: str = "") -> Counter[str]:
    sizes: Counter[str] = Counter()
    for row in contents["rows"]:
        if not category or row[0] == category:
            sizes[row[at]] += row[6]
    return sizes


def counted(model: nn.Module) -> Counter[str]:
    """What torch's own hooks see saved, by the module that runs: each storage once, without weights and inputs."""
    tokens = torch.randint(0, 300, (8, 16))
    own = {tensor.untyped_storage()._cdata for tensor in (tokens, *model.parameters(), *model.buffers())}
    running, sizes, seen = ["after the forward"], Counter[str](), []
    for name, part in model.named_modules():
        title = name or type(model).__name__
        part.register_forward_pre_hook(lambda *_, title=title: running.append(title))
        part.register_forward_hook(lambda *_: running.pop() and None)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            own.add(storage._cdata)
            seen.append(storage)
            sizes[running[-1]] += storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(model, tokens)
    return sizes


@pytest.mark.parametrize("make", [Language, Recurrent])
def test_each_modules_activations_are_what_torch_saw_it_save(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    """Module by module within 2 % of an independent count by saved-tensor hooks."""
    found = by(run(tmp_path, make(), batches=1, kind=torch.optim.SGD)[0], 1, "activations")
    expected = counted(make())
    assert set(found) == {name for name, nbytes in expected.items() if nbytes}
    assert all(abs(found[name] - expected[name]) <= 0.02 * expected[name] for name in found)


@pytest.mark.parametrize("make", [Language, Recurrent, lambda: Language(Recomputed)])
def test_the_rows_make_up_the_peak(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    """All rows of a batch together are its allocated peak, and states are there once the optimizer has stepped."""
    taken = run(tmp_path, make())
    assert len(taken) >= 2
    for contents in taken:
        assert sum(by(contents, 0).values()) == pytest.approx(contents["allocated_peak_bytes"], rel=0.02)
    weights = sum(parameter.numel() * 4 for parameter in make().parameters())
    last = by(taken[-1], 0)
    assert last["parameters"] == weights
    assert last["optimizer"] == pytest.approx(2 * weights, rel=0.02)
    assert last["temporaries"] < 0.5 * taken[-1]["allocated_peak_bytes"]


def test_what_earlier_batches_left_is_a_category_with_its_holder(tmp_path: Path) -> None:
    """A list of outputs that grows: kept, under the list's name, and more at each look."""
    model, outputs = Language(), []

    def keep(loss: torch.Tensor) -> None:
        outputs.append(torch.zeros(256 * 1024))

    taken = run(tmp_path, model, batches=26, each=keep)
    kept = [by(contents, 0, "kept").total() for contents in taken]
    assert kept == sorted(kept) and kept[-1] >= 8 * 2**20
    assert by(taken[-1], 1, "kept")["outputs"] >= 0.8 * kept[-1]


def test_many_tensors_become_few_rows_of_the_same_sum() -> None:
    """Equal ones are counted together, the smallest are summed up."""
    rows = [
        Row("activations", f"layer {at % 400}", None, None, None, "Mul", (at,), "float32", at) for at in range(3000)
    ]
    told = PeakContents(
        batch=0, stage="train", allocated_peak_bytes=1, when="backward", module="", rows=[*rows, *rows[-5:]]
    ).to_json()
    assert len(told["rows"]) <= 2 * MOST_ROWS + 1
    assert sum(row[6] for row in told["rows"]) == sum(range(3000)) + sum(range(2995, 3000))
    assert told["rows"][0][6:] == [2 * 2999, 2]
