"""The attribute that keeps a local tensor for the next call."""

from pathlib import Path

import pytest

from memguard.source.keepers import keeper_of, own_keeper


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


@pytest.mark.parametrize(
    ("body", "holder"),
    [
        ("self.last = self.net(x).softmax(1)", "Net.last"),
        ("y = self.last; self.last = self.net(x)", None),
        ("self.last = self.blend(x)", None),
        ("last = self.net(x)", None),
    ],
)
def test_an_attribute_keeps_what_its_own_line_makes(tmp_path: Path, body: str, holder: str | None) -> None:
    """Unless the method, or one that it calls, reads what the last call left there."""
    file = tmp_path / "net.py"
    file.write_text(
        f"class Net:\n    def step(self, x):\n        {body}\n    def blend(self, x):\n        return x + self.last\n"
    )
    name = "self.last" if "self.last" in body else "last"
    found = own_keeper(str(file), 3, name)
    assert (found.holder if found else None) == holder
    assert found is None or (found.line, found.function) == (3, "Net.step")
