"""The bound of a buffer is read from the source and from plain attributes."""

import collections
from pathlib import Path

import pytest

from memguard.evidence.naming.names import capacity_of, outgrew
from memguard.heap.children import Via
from memguard.heap.walk import Link
from memguard.source.bounds import Bound, bounds_of


class Memory:
    def __init__(self) -> None:
        self.capacity = 5_000
        self.items: list[int] = []


def source(tmp_path: Path, condition: str) -> str:
    file = tmp_path / "agent.py"
    file.write_text(
        f"LIMIT = 10 ** 4\nmemory = []\n\ndef push(self, x):\n    memory.append(x)\n    if {condition}: pass\n"
    )
    return str(file)


@pytest.mark.parametrize(
    ("condition", "capacity"),
    [
        ("len(memory) > 1_000_000", 10**6),
        ("len(memory) >= int(1e5)", 10**5),
        ("64 * 1024 < len(memory)", 65_536),
        ("len(memory) > LIMIT", 10**4),
        ("len(memory) > args.limit", None),
        ("len(memory) > 32 and len(memory) > args.limit", None),
        ("len(other) > 32", None),
        ("len(memory) % 10 == 0", None),
    ],
)
def test_numbers_in_the_source_are_read(tmp_path: Path, condition: str, capacity: int | None) -> None:
    """Literals, products, powers and a module's constants; what is not known for certain is None."""
    assert capacity_of(None, source(tmp_path, condition), "memory") == capacity


def test_an_attribute_of_the_owner_is_read(tmp_path: Path) -> None:
    """``self.capacity`` stands in the object that has the list; no property is asked."""
    file = tmp_path / "agent.py"
    file.write_text(
        "def push(self, x):\n    self.items.append(x)\n    if len(self.items) > self.capacity: self.items.pop(0)\n"
    )
    owner = Memory()
    link = Link(owner.items, Via.ATTRIBUTE, "items", Link(owner, Via.GLOBAL, "memory"))
    assert capacity_of(link, str(file), "Memory.items") == 5_000


def test_a_deque_knows_its_own(tmp_path: Path) -> None:
    """Whatever the source says; without a maxlen there is none."""
    bounded, free = (
        Link(collections.deque([1], maxlen=7), Via.GLOBAL, "d"),
        Link(collections.deque([1]), Via.GLOBAL, "d"),
    )
    assert capacity_of(bounded, None, None) == 7
    assert capacity_of(free, source(tmp_path, "len(d) > 3"), "d") is None


def test_a_length_that_learning_waits_for_is_no_bound(tmp_path: Path) -> None:
    """``if len(memory) < batch_size: return`` limits nothing, which shows once the list is longer."""
    file = source(tmp_path, "len(memory) < 32")
    assert bounds_of(file, 5, "memory")
    assert outgrew(65, 32) and not outgrew(40, 32) and not outgrew(65, None)
    assert not bounds_of(file, 5, "memory") & ~Bound.MEASURED
