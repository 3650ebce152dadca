"""Small views that keep large storages are found by the container that holds them."""

import torch
from torch import nn

from memguard.probes.kept.pins import find_pins
from memguard.probes.naming.holders import Survey

BIG = 1 << 18  # elements of four bytes: 1 MiB


def test_views_in_a_list_are_told_with_used_and_pinned_bytes() -> None:
    """Columns of large outputs pin the outputs; the list and the statement are named."""
    firsts = []
    for _ in range(4):
        out = torch.zeros(BIG // 64, 64)
        firsts.append(out[:16, 0])
    del out
    (pin,) = find_pins(Survey())
    assert (pin.place.holder, pin.views) == ("firsts", 4)
    assert pin.place.source == "firsts.append(out[:16, 0])"
    assert (pin.used_bytes, pin.pinned_bytes) == (4 * 16 * 4, 4 << 20)
    assert len(pin.storages) == 4


def test_rows_of_a_tensor_that_is_kept_anyway_are_not_told() -> None:
    """While the base itself is alive under a name, its views pin nothing."""
    data = torch.zeros(BIG // 64, 64)
    rows = [data[index] for index in range(8)]
    assert find_pins(Survey()) == ()
    assert len(rows) == 8


def test_parameters_and_small_storages_are_not_told() -> None:
    """Views of weights are wanted, and small storages do not matter."""
    model = nn.Linear(512, 512)
    ties = [model.weight[0], model.weight.data[:2]]
    small = [torch.zeros(1000)[:1]]
    own = {model.weight.untyped_storage()._cdata}
    assert find_pins(Survey(models=[model]), ignore=own) == ()
    assert len(ties) + len(small) == 3


def test_copies_are_not_told() -> None:
    """A slice that was cloned keeps nothing."""
    firsts = [torch.zeros(BIG // 64, 64)[:, 0].clone() for _ in range(3)]
    assert find_pins(Survey()) == ()
    assert len(firsts) == 3
