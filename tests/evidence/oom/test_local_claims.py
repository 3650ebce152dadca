"""To whom the tensors of local variables belong when memory has run out."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from memguard.evidence.oom.census import Census
from memguard.evidence.oom.holders import claim_locals
from memguard.evidence.oom.stack import Stack, stack_of
from memguard.postmortem.scene import TopLine

KIB = 1024


def claim(stack: Stack) -> tuple[dict[str, list[int]], tuple[TopLine, ...]]:
    """Sizes by owner, and the lines."""
    census = Census(lambda tensor: True, lambda address, nbytes: nbytes)
    lines = claim_locals(census, stack)
    stack.frames.clear()
    found: dict[str, list[int]] = {}
    for key, owner in census.owner.items():
        found.setdefault(owner, []).append(census.size[key])
    return found, lines


def test_a_list_that_the_loop_fills_is_kept_however_long_it_is() -> None:
    """All of it, and for its line; what the round itself made is temporary."""
    kept = []
    for _ in range(100):
        batch = torch.zeros(2 * KIB, dtype=torch.uint8)
        kept.append(torch.zeros(KIB, dtype=torch.uint8))
        if len(kept) == 100:
            found, lines = claim(Stack([sys._getframe()]))
    del batch
    assert found == {"outputs": 100 * [KIB], "temporaries": [2 * KIB]}
    assert [line.bytes for line in lines] == [102 * KIB]


def test_variables_of_memguard_itself_are_not_named() -> None:
    """What only it still holds is a temporary."""
    names = {"__name__": "memguard.backends.some", "sys": sys, "Census": Census, "Stack": Stack}
    text = "def look(args):\n    census = Census(lambda tensor: True, lambda address, nbytes: nbytes)\n"
    text += "    claim_locals(census, Stack([sys._getframe()]))\n    return [told[0] for told in census.told.values()]"
    space: dict[str, Any] = {**names, "claim_locals": claim_locals}
    exec(text, space)
    assert space["look"](torch.zeros(KIB)) == ["a temporary"]


def test_a_storage_counts_for_one_line() -> None:
    """The innermost frame that has it, so that lines add up."""

    def inner(tensor: torch.Tensor) -> tuple[TopLine, ...]:
        frame = sys._getframe()
        assert frame.f_back is not None
        return claim(Stack([frame, frame.f_back]))[1]

    tensor = torch.zeros(KIB, dtype=torch.uint8)
    assert [line.bytes for line in inner(tensor)] == [KIB]


class Collecting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for _ in range(4):
            kept.append(x + 1)
            if len(kept) == 3:
                raise torch.OutOfMemoryError
        return x


def test_what_a_forward_collects_belongs_to_its_batch() -> None:
    """It is gone with the forward, in whatever list it is."""
    try:
        Collecting()(torch.zeros(KIB, dtype=torch.uint8))
    except torch.OutOfMemoryError as error:
        found, _ = claim(stack_of(error))
    assert "outputs" not in found
