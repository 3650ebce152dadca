"""The attribute that keeps a local tensor for the next call."""

from pathlib import Path

import pytest

from memguard.source.keepers import keeper_of


@pytest.mark.parametrize(
    ("keeps", "holder"),
    [
        ("self.last = out.detach()", "Net.last"),
        ("self.last = out", "Net.last"),
        ("self.last = out.data.detach().view(-1)", "Net.last"),
        ("self.last = out.detach().cpu()", None),
        ("self.last = out.detach().clone()", None),
        ("self.last = out[:8]", None),
        ("drift = out - self.last; self.last = out", None),
        ("last = out.detach()", None),
        ("other.last = out.detach()", None),
    ],
)
def test_a_view_that_is_kept_keeps_the_tensor(tmp_path: Path, keeps: str, holder: str | None) -> None:
    """As the method's own attribute; a copy or another variable does not, nor what the method reads itself."""
    file = tmp_path / "net.py"
    file.write_text(
        f"class Net:\n    def step(self, x):\n        out = x * 2\n        {keeps}\n        return out.sum()\n"
    )
    found = keeper_of(str(file), 3, "out")
    assert (found.holder if found else None) == holder
    assert found is None or (found.line, found.function) == (4, "Net.step")


def test_a_loop_of_the_method_keeps_it_by_itself(tmp_path: Path) -> None:
    """The variable still has the last turn's."""
    file = tmp_path / "net.py"
    file.write_text("class Net:\n  def fit(self, xs):\n    for x in xs:\n      out = x * 2\n      self.last = out\n")
    assert keeper_of(str(file), 4, "out") is None
