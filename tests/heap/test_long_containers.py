"""Long containers are read whole, and not beyond a bound."""

import torch

from memguard.evidence.naming.holders import HolderSearch
from memguard.heap.snapshot import MOST_ELEMENTS, tensors_of_all


def test_all_tensors_of_a_long_container_are_found() -> None:
    """Those that a walk passes over as well, in tuples and in lists of lists."""
    records = {number: (number, [torch.zeros(4)]) for number in range(300)}
    leaves = [link for link in HolderSearch().snapshot.tensors if tuple(link.value.shape) == (4,)]
    assert len(leaves) < 100
    found = tensors_of_all(leaves)
    assert found is not None
    assert {id(tensor) for tensor in found} == {id(record[1][0]) for record in records.values()}


def test_what_is_too_long_is_not_read() -> None:
    """It would hold up the training."""
    records = [torch.zeros(5)] * (MOST_ELEMENTS + 1)
    leaves = [link for link in HolderSearch().snapshot.tensors if tuple(link.value.shape) == (5,)]
    assert leaves
    assert tensors_of_all(leaves) is None
    assert len(records) == MOST_ELEMENTS + 1
