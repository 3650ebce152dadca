"""One look at the heap: what it measures, what it finds through caches and views, and that it lets go of all."""

from __future__ import annotations

import functools
import weakref

import torch

from memguard.autograd.graph import graph_of, held_bytes, iter_nodes
from memguard.heap.snapshot import HeapSnapshot


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
