"""Small views that keep large storages are found by the container that holds them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.kept.incremental_scan import APART
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.kept.views import find_pins, used_state
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.sampling_budget import LOOKS
from memguard.records.facts import ViewsPinStorage
from tests.evidence.loop import Loop

BIG = 1 << 18  # elements of four bytes: 1 MiB


def test_views_in_a_list_are_told_with_used_and_pinned_bytes() -> None:
    """Columns of large outputs pin the outputs; the list and the statement are named."""
    firsts = []
    for _ in range(4):
        out = torch.zeros(BIG // 64, 64)
        firsts.append(out[:16, 0])
    del out
    (pin,) = find_pins(HolderSearch())
    assert (pin.place.holder, pin.views) == ("firsts", 4)
    assert pin.place.source == "firsts.append(out[:16, 0])"
    assert (pin.used_bytes, pin.pinned_bytes) == (4 * 16 * 4, 4 << 20)
    assert len(pin.storages) == 4


def test_rows_of_a_tensor_that_is_kept_anyway_are_not_told() -> None:
    """While the base itself is alive under a name, its views pin nothing."""
    data = torch.zeros(BIG // 64, 64)
    rows = [data[index] for index in range(8)]
    assert find_pins(HolderSearch()) == ()
    assert len(rows) == 8


def test_parameters_and_small_storages_are_not_told() -> None:
    """Views of weights are wanted, and small storages do not matter."""
    model = nn.Linear(512, 512)
    ties = [model.weight[0], model.weight.data[:2]]
    small = [torch.zeros(1000)[:1]]
    own = {model.weight.untyped_storage()._cdata}
    assert find_pins(HolderSearch(models=[model]), ignore=own) == ()
    assert len(ties) + len(small) == 3


def test_copies_are_not_told() -> None:
    """A slice that was cloned keeps nothing."""
    firsts = [torch.zeros(BIG // 64, 64)[:, 0].clone() for _ in range(3)]
    assert find_pins(HolderSearch()) == ()
    assert len(firsts) == 3


class Sliced(torch.optim.SGD):
    """Of the user's: keeps every eleventh weight of the start, and parts of one flat buffer."""

    def begin(self, *, clone: bool) -> None:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        flat = torch.zeros(sum(parameter.numel() for parameter in parameters))
        parts = flat.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            start = parameter.detach().clone().flatten()[::11]
            self.state[parameter]["flat"] = part
            self.state[parameter]["start"] = start.clone() if clone else start


def test_a_users_optimizer_may_pin_with_what_it_keeps() -> None:
    """Slices of clones do; parts of a buffer that are all there do not, however few of them a walk meets."""
    model = nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(80)])
    optimizer = Sliced(model.parameters(), lr=0.1)
    optimizer.begin(clone=False)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    (pin,) = find_pins(HolderSearch(), ignore=own | used_state(optimizer).keys(), min_storage_bytes=1 << 16)
    assert (pin.place.holder, pin.pinned_bytes) == ("Sliced.state", 80 << 18)
    assert pin.place.source == 'self.state[parameter]["start"] = start.clone() if clone else start'
    optimizer.begin(clone=True)
    assert find_pins(HolderSearch(), ignore=own | used_state(optimizer).keys(), min_storage_bytes=1 << 16) == ()


def test_an_optimizer_of_a_library_pins_nothing() -> None:
    """Whatever it keeps, nobody can change it."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(8))], lr=0.1)
    optimizer.state[optimizer.param_groups[0]["params"][0]]["start"] = start = torch.zeros(BIG)[:8]
    assert used_state(optimizer).keys() == {start.untyped_storage()._cdata}


def test_rows_that_a_long_container_keeps_are_not_told_of_who_has_a_few_of_them() -> None:
    """Of the bank some elements are looked at; the storages have all their rows all the same."""
    bank = {}
    for turn in range(8):
        for number, row in enumerate(torch.zeros(4096, BIG // 4096)):
            bank[turn, number] = row
    del row
    some = [bank[turn, number].detach() for turn in range(8) for number in (1, 7, 2000)]
    assert [pin for pin in find_pins(HolderSearch()) if pin.place.holder == "some"] == []
    bank.clear()
    assert [pin.place.holder for pin in find_pins(HolderSearch())] == ["some"]
    assert len(some) == 24


def test_a_long_container_is_counted_whole() -> None:
    """Three pictures of each batch in a heap of tuples: of many elements that are not met in a walk, many share one."""
    heap = [(number, row) for _ in range(30) for number, row in enumerate(torch.zeros(64, BIG // 64)[:3])]
    (pin,) = find_pins(HolderSearch())
    assert (pin.place.holder, pin.views, pin.pinned_bytes, pin.held_bytes) == ("heap", 90, 30 << 20, 30 << 20)
    assert pin.used_bytes == 90 * (1 << 20) // 64
    assert len(heap) == 90


def test_rows_far_apart_in_a_long_container_are_all_counted() -> None:
    """Wherever the other rows stand, no storage of theirs is pinned."""
    batches = [torch.zeros(16, BIG // 16) for _ in range(8)]
    rows = [batch[number] for number in range(16) for batch in batches]
    del batches
    assert find_pins(HolderSearch()) == ()
    assert len(rows) == 128


def test_views_are_looked_for_where_the_floor_rises_and_told_again_when_they_are_twice_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the batch from which on it rose, by which the rate is known."""
    monkeypatch.setattr("memguard.heap.roots.user_module_names", lambda: ())
    rows: list[torch.Tensor] = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe]) as loop:
        for _ in loop.batches(60):
            pass
        for rise, since in ((1, 0), (2, 50)):
            rows += [torch.zeros(64, 1024)[3] for _ in range(4 * rise)]
            loop.watch.rose, loop.watch.rises_since = loop.batch, since
            loop.watch.look_closely(LOOKS, surely=True)
            for _ in loop.batches(APART + 8):
                pass
    first, later = loop.of(ViewsPinStorage)
    assert (first.views, later.views) == (4, 12) == (len(rows) - 8, len(rows))
    assert first.place == later.place and (first.since, later.since) == (0, 50)
