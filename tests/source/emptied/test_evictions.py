"""Which attributes limit what a container in an attribute holds."""

from pathlib import Path

import pytest

from memguard.source.emptied.evictions import limits_of, returned_length

CLASS = """class Pictures:
    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = read(i)
            {then}
        {later}
"""
PAST = "if len(self.kept) > self.most: self.kept.popitem()"


@pytest.mark.parametrize(
    ("then", "later", "limits"),
    [
        (PAST, "pass", {"most"}),
        ("while self.most <= len(self.kept): del self.kept[first(self.kept)]", "pass", {"most"}),
        ("self.order.append(i)", "if len(self.order) > self.n: self.kept.pop(self.order.pop(0))", {"n"}),
        ("pass", "self.order.append(i)\n        if len(self.order) > self.n: self.kept.pop(0)", set()),
        ("if len(self.kept) > 100: self.kept.popitem()", "pass", set()),
        (PAST, "self.kept.pop(i)", set()),
        (PAST, "if i == 0: self.kept.clear()", set()),
        ("pass", "pass", set()),
    ],
)
def test_the_limits_of_a_cache(tmp_path: Path, then: str, later: str, limits: set[str]) -> None:
    """None where something is taken out otherwise, or the number stands in the source."""
    file = tmp_path / "pictures.py"
    file.write_text(CLASS.format(then=then, later=later))
    assert limits_of(str(file), 4, "kept") == limits


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("return self.n", "n"),
        ("'How many.'; return len(self.names)", "names"),
        ("return len(self.names) * 2", None),
        ("self.check(); return self.n", None),
    ],
)
def test_what_a_length_is_read_from(tmp_path: Path, body: str, name: str | None) -> None:
    """Only where nothing else is done."""
    file = tmp_path / "length.py"
    file.write_text(f"def __len__(self):\n    {body}\n")
    assert returned_length(str(file), 1) == name
