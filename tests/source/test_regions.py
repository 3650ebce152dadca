"""Autocast regions that are left open."""

import ast

import pytest

from memguard.source.regions import Regions

RESOURCE = """
class Run:
    def __enter__(self):
        {entering}
        return self

    def step(self):
        with torch.autocast("cpu"):
            return self.model()
"""


@pytest.mark.parametrize(
    ("entering", "found"),
    [
        ("self.stack.enter_context(torch.autocast('cpu'))", [("__enter__", 4)]),
        ("torch.autocast('cpu').__enter__()", [("__enter__", 4)]),
        ("self.amp = torch.autocast('cpu'); self.amp.__enter__()", [("__enter__", 4)]),
        ("self.stack.enter_context(open('log'))", []),
    ],
)
def test_only_what_is_entered_without_a_with_stays_open(entering: str, found: list[tuple[str, int]]) -> None:
    """A ``with`` closes its region as the function goes on."""
    assert Regions(ast.parse(RESOURCE.format(entering=entering))).left_open() == found
