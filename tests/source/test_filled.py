from __future__ import annotations

import ast

import pytest

from memguard.source.filled import filled_at
from memguard.source.function_index import functions_of

BEFORE = "def train(loader):\n    kept = {}\n    for epoch in range(2):\n        for batch in loader:\n            "


@pytest.mark.parametrize(
    ("statement", "filled"),
    [
        ("kept.append(batch)", True),
        ("kept.setdefault('a', []).append(batch)", True),
        ("kept['a'] = batch", True),
        ("kept['a'].append(batch)", True),
        ("kept += [batch]", True),
        ("kept = [batch]", False),
        ("kept = []; kept.append(batch)", False),
        ("other.append(kept)", False),
        ("kept.pop(0)", False),
        ("kept.get('a')", False),
    ],
)
def test_a_container_that_a_loop_fills_is_made_before_it_and_added_to_in_it(statement: str, filled: bool) -> None:
    """What is made anew in each round, or only read there, holds nothing of the rounds before."""
    function = functions_of(ast.parse(BEFORE + statement))[1]
    assert filled_at(function, "kept", 5) == (5 if filled else None)
    assert filled_at(function, "kept", 2) is None


def test_a_list_of_each_epoch_is_filled_by_the_loop_over_its_batches() -> None:
    """The innermost loop counts."""
    text = "for epoch in range(2):\n    kept = []\n    for batch in loader:\n        kept.append(batch)\n"
    assert filled_at(functions_of(ast.parse(text))[0], "kept", 4) == 4
