"""Which statement gives an attribute something new."""

from pathlib import Path

import pytest

from memguard.source.remaking import remade_attribute

MADE = """class Ensemble:
    def __post_init__(self):
        self.Z = torch.zeros(8)

    def {first}(self):
        self.Z = torch.zeros(8)

    def close_epoch(self):
        self.Z = {value}
"""


@pytest.mark.parametrize(
    ("first", "value", "line"),
    [
        ("__init__", "torch.randn(8)", 9),  # what a constructor gives is the first
        ("reset", "0.6 * self.Z + 0.4 * said", 9),  # the old one is certainly there
        ("reset", "torch.randn(8)", 6),  # as likely as the other
    ],
)
def test_the_statement_that_meets_the_old_one_is_told(tmp_path: Path, first: str, value: str, line: int) -> None:
    """A constructor's never, and one that makes the new from the old before any other."""
    file = tmp_path / "ensemble.py"
    file.write_text(MADE.format(first=first, value=value))
    place = remade_attribute(str(file), "Ensemble", "Z")
    assert place is not None and place.line == line


def test_a_helper_s_variable_of_the_same_name_is_not_the_attribute(tmp_path: Path) -> None:
    """The statement that gives the attribute something new is told, not the one in the method that makes it."""
    file = tmp_path / "search.py"
    file.write_text(
        "class Search:\n"
        "    def make(self):\n"
        "        model = self.init()\n"
        "        return model\n"
        "    def train(self):\n"
        "        self.model = self.make()\n"
    )
    place = remade_attribute(str(file), "Search", "model")
    assert place is not None and (place.line, place.function) == (6, "Search.train")
