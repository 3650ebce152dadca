"""One look at the heap: what it measures, what it finds through caches and views, and that it lets go of all."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable

import pytest
import torch

from memguard.autograd.graph import graph_of, held_bytes, iter_nodes
from memguard.evidence.naming.holders import HolderSearch
from memguard.heap.snapshot import MOST_ELEMENTS, HeapSnapshot, tensors_of_all, unsampled_tensors


def below(root: object) -> HeapSnapshot:
    return HeapSnapshot([("root", root)])


def test_a_look_holds_nothing_after_its_end(without_collector: None) -> None:
    """Neither in the snapshot nor in the links that somebody still has."""
    kept = [torch.ones(4), {"a": torch.ones(4)}]
    refs = [weakref.ref(kept[0])]
    with below(kept) as snapshot:
        links = list(snapshot.tensors)
        assert len(links) == 2
    kept.clear()
    assert refs[0]() is None and all(link.value is None for link in links)
    assert snapshot.tensors == []


def test_a_container_weighs_all_that_its_elements_keep() -> None:
    """Each storage once, whatever lies beside the first tensor; a long list is scaled up."""
    rows = [(torch.ones(10), {"mask": torch.ones(90)}) for _ in range(200)]
    sizes = {id(link.value): size for link, size in below(rows).containers()}
    assert sizes[id(rows)].length == 200
    assert sizes[id(rows)].bytes == 200 * 400


@pytest.mark.parametrize("count", [20, 200])
def test_what_most_elements_lead_to_is_no_weight_of_another_one(count: int) -> None:
    """The series of which each window has a part of its own: it lies there once, however many windows there are."""
    series = torch.ones(1000)
    windows = [(series, torch.ones(10)) for _ in range(count)]
    sizes = {id(link.value): size for link, size in below(windows).containers()}
    assert sizes[id(windows)].common_bytes == 4000
    assert sizes[id(windows)].bytes == 4000 + count * 40


@pytest.mark.parametrize("keep", [list, dict.fromkeys, set])
def test_rows_of_batches_weigh_what_their_batches_do(keep: Callable[[list[torch.Tensor]], object]) -> None:
    """Each storage once, though a sample meets few of the rows that share it; also where the rows are keys."""
    rows = [row for batch in torch.ones(20, 50, 10).unbind(0) for row in batch.clone()]
    kept = keep(rows)
    sizes = {id(link.value): size for link, size in below(kept).containers()}
    assert sizes[id(kept)].bytes == 20 * 50 * 10 * 4


def test_the_answers_of_a_bounded_cache_are_met() -> None:
    """``lru_cache(maxsize=8)`` keeps each answer in a link of its own."""

    @functools.lru_cache(maxsize=8)
    def model_of(fold: int) -> dict[str, torch.Tensor]:
        return {"weight": torch.full((1,), float(fold))}

    for fold in range(6):
        model_of(fold)
    assert {link.value.item() for link in below(model_of).tensors} == set(range(6))


def test_a_view_made_under_no_grad_has_the_graph_of_its_base() -> None:
    """It has no ``grad_fn`` of its own, and keeps what its base saved all the same."""
    weight = torch.ones(4, 4, requires_grad=True)
    base = torch.sigmoid(torch.ones(2, 4) @ weight)
    with torch.no_grad():
        view = base[0]
    assert view.grad_fn is None and graph_of(view) is base.grad_fn
    assert held_bytes(view, {}) == held_bytes(base, {})


def test_nodes_come_once_each_up_to_a_limit_and_not_beyond_an_end() -> None:
    """Breadth first, from several starts; what ends the walk is left out with what lies above it alone."""
    x = torch.ones(2, requires_grad=True)
    shared = x * 2
    one, two = shared.exp(), shared.sin()
    nodes = list(iter_nodes([one.grad_fn, None, two.grad_fn]))
    assert len(nodes) == len(set(nodes)) == 4
    assert len(list(iter_nodes([one.grad_fn, two.grad_fn], 2))) == 2
    ends = list(iter_nodes([one.grad_fn], ends=lambda node: node is shared.grad_fn))
    assert ends == [one.grad_fn]


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
