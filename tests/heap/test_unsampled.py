from __future__ import annotations

import torch

from memguard.evidence.naming.holders import HolderSearch
from memguard.heap.snapshot import HeapSnapshot, unsampled_tensors


def test_what_a_sample_left_out_is_read() -> None:
    """Of a list of pairs too long to be read whole every tensor is either met or passed over; a short one is read."""
    long, short = [(torch.zeros(1), torch.zeros(1)) for _ in range(100)], [torch.zeros(1) for _ in range(5)]
    links = HeapSnapshot([(None, long), (None, short)]).tensors
    met, others = {id(link.value) for link in links}, [id(link.value) for link in unsampled_tensors(links)]
    assert len(met) < 100
    assert len(others) == len(set(others))
    assert met | set(others) == {id(tensor) for pair in long for tensor in pair} | {id(tensor) for tensor in short}
    assert met.isdisjoint(others)


def test_a_list_is_named_though_no_tensor_of_the_sample_is_meant() -> None:
    """Of a thousand elements one in the middle of a half is recognised: the walk alone would have passed it over."""
    kept = [{"loss": torch.zeros(1)} for _ in range(1000)]
    meant = id(kept[300]["loss"])
    (holder,) = HolderSearch().find(lambda tensor: 4 if id(tensor) == meant else None, graph=False, collector=False)
    assert holder.place.holder == "kept"
    assert holder.length == 1000
