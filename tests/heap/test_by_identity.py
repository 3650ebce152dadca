import gc

from memguard.heap.weak_keys import WeakIdentityDict


class Thing:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = None  # type: ignore[assignment]


def test_objects_are_told_apart_without_asking_them() -> None:
    """Objects that refuse to be hashed or compared have their own values."""
    entries: WeakIdentityDict[Thing, int] = WeakIdentityDict()
    one, other = Thing(), Thing()
    entries[one] = 1
    entries[one] = 2
    assert one in entries and other not in entries
    assert entries.get(one) == 2
    assert entries.get(other) is None and entries.get(other, 5) == 5
    assert entries.keys()[0] is one and list(entries.values()) == [2]
    assert entries.pop(one) == 2 and entries.pop(one) is None


def test_an_entry_goes_with_its_object() -> None:
    """Nothing is held, and a new object at the same address is another one."""
    entries: WeakIdentityDict[Thing, int] = WeakIdentityDict()
    thing = Thing()
    entries[thing] = 1
    del thing
    gc.collect()
    assert list(entries.values()) == [] and entries.keys() == []
