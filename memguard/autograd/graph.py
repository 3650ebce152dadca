"""An autograd graph read from one of its nodes upwards, without running unpack hooks or copying."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

import torch

from memguard.torch_objects.storages import storages_of

MAX_NODES = 4000
"""Nodes of one graph that are visited."""

SHOWS_SAVED = hasattr(torch._C._autograd.SavedTensor, "data")
"""Whether this torch shows what a graph saved; torch 2.4 does not."""
_RAW = "_raw_saved_"  # SavedTensor attributes of C++ nodes with .data and .unpack_hook; checked in torch 2.13


class GraphToken:
    """Sits in the ``metadata`` of a node and dies with it: a weak reference to it tells when.

    Copied or pickled with the node it becomes None, so that no copy of the user's knows memguard.
    """

    __slots__ = ("__weakref__",)

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())


class NodePrehook:
    """Called as a backward comes to a node; it is not copied with the node."""

    __slots__ = ()

    def __deepcopy__(self, memo: object) -> NodePrehook:
        return self


def graph_of(tensor: torch.Tensor) -> Any:
    """The node that made a tensor; of a view made under no_grad that of its base, which it keeps. None without one."""
    if tensor.grad_fn is None and tensor._base is not None:
        return tensor._base.grad_fn
    return tensor.grad_fn


def iter_nodes(
    starts: Iterable[Any],
    limit: int = MAX_NODES,
    *,
    known: Collection[Any] = (),
    ends: Callable[[Any], bool] | None = None,
) -> Iterator[Any]:
    """The nodes of graphs, from some nodes upstream, each once, breadth first. Holds the nodes until it ends.

    Args:
        starts: Where to begin; None among them is passed over.
        limit: Nodes after which it ends.
        known: Nodes that are not entered.
        ends: Tells whether a node is left out, with what is above it alone.
    """
    level = deque(node for node in starts if node is not None)
    seen = set(level)
    left = limit
    while level and left > 0:
        node = level.popleft()
        left -= 1
        yield node
        for upstream, _ in node.next_functions:
            if upstream is not None and upstream not in seen and upstream not in known:
                if ends is not None and ends(upstream):
                    continue
                seen.add(upstream)
                level.append(upstream)


_SUMS = frozenset({"Add", "Sub", "Rsub", "Stack", "Cat"})
_READS_WEIGHT = frozenset(
    {"ToCopy", "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze"}
)
_SCALES = _SUMS | _READS_WEIGHT | {"Mul", "Div", "Neg", "Mean", "Sum", "Nansum", "Expand", "Select", "Clone"}
MAX_SUMMANDS = 1024


def summands_of(loss: Any) -> list[Any]:
    """The nodes of what a loss adds up: what stands before its additions, scaled or not. Itself where it adds nothing.

    Numbers that are put together and weighed one by one count as one: their weights may have waited for all of them.
    """
    found: list[Any] = []
    left, seen = [loss], set()
    while left and len(found) < MAX_SUMMANDS:
        node = summand = left.pop()
        while len(inputs := _inputs_of(node)) == 1 and _operator(node) in _SCALES and not _weighs_each(node):
            node = inputs[0]
        if node in seen:
            continue
        seen.add(node)
        if len(inputs) > 1 and _operator(node) in _SUMS:
            left.extend(inputs)
        else:
            found.append(summand)
    return found


def _weighs_each(node: Any) -> bool:
    """Whether a node multiplies by several numbers: those of losses that were put together, say by their returns."""
    return _operator(node) in ("Mul", "Div") and any(tensor.numel() > 1 for tensor in saved_tensors(node))


def separate_graphs(starts: Iterable[Any], limit: int) -> list[set[Any]]:
    """The nodes of the graphs above some nodes; graphs that share more than weights are one. Holds the nodes.

    What merely reads a weight may be shared as well: autocast makes one copy of it for all forwards.

    Args:
        starts: Where to begin.
        limit: Nodes of all of them together, above which there is no answer.
    """
    graph_of_node: dict[Any, int] = {}
    graphs: dict[int, set[Any]] = {}
    for number, start in enumerate(starts):
        nodes: set[Any] = set()
        shared: set[int] = set()

        def is_known(node: Any, nodes: set[Any] = nodes, shared: set[int] = shared) -> bool:
            other = graph_of_node.get(node)
            if other is not None and (weight := _weight_read(node)) is not None:
                nodes.add(weight)
            elif other is not None:
                shared.add(other)
            return other is not None

        if is_known(start):
            continue
        nodes.update(iter_nodes((start,), limit + 1, ends=is_known))
        limit -= len(nodes)
        if limit < 0:
            return []
        for other in shared:
            nodes |= graphs.pop(other)
        graphs[number] = nodes
        graph_of_node.update(dict.fromkeys(nodes, number))
    return list(graphs.values())


def _weight_read(node: Any) -> Any:
    """The leaf where a graph ends that does nothing but read a weight; None of any other graph."""
    while len(inputs := _inputs_of(node)) == 1 and _operator(node) in _READS_WEIGHT:
        node = inputs[0]
    return node if is_leaf(node) else None


def is_leaf(node: Any) -> bool:
    """Whether a node is a leaf's, which wants a gradient."""
    return hasattr(node, "variable")


def _inputs_of(node: Any) -> list[Any]:
    return [upstream for upstream, _ in node.next_functions if upstream is not None]


def _operator(node: Any) -> str:
    return str(node.name()).partition("Backward")[0]


def in_turn(graphs: Iterable[set[Any]]) -> list[set[Any]]:
    """Graphs in the order in which they were built; none where one was begun before the one before was complete.

    What reads a weight may be older than the rest of its graph, and a weight has no time.
    """
    spans = []
    for nodes in graphs:
        numbers = [number_of(node) for node in nodes if _weight_read(node) is None]
        spans.append((min(numbers, default=0), max(numbers, default=0), nodes))
    spans.sort(key=lambda span: span[:2])
    return [span[2] for span in spans] if all(one[1] < other[0] for one, other in pairwise(spans)) else []


def number_of(node: Any) -> int:
    """The number that torch gave a node of this thread when it was built; 0 where it tells none."""
    try:
        return int(node._sequence_nr())  # checked in torch 2.13
    except (AttributeError, RuntimeError):
        return 0


def depth_of(node: Any, most: int, *, first: bool) -> int:
    """How many nodes a graph is deep along the first inputs, or the last; `most` where it is deeper."""
    for depth in range(most):
        inputs = node.next_functions if first else node.next_functions[::-1]
        node = next((upstream for upstream, _ in inputs if upstream is not None), None)
        if node is None:
            return depth
    return most


def leaves_of(starts: Iterable[Any], limit: int = MAX_NODES) -> Iterator[torch.Tensor]:
    """The leaves that want a gradient, where graphs end."""
    for node in iter_nodes(starts, limit):
        variable = getattr(node, "variable", None)
        if variable is not None:
            yield variable


def leaf_storages(node: Any) -> dict[int, int]:
    """The storages of a plain leaf where a graph ends, and of its gradient. A weight is none: its module holds it."""
    variable = getattr(node, "variable", None)
    if type(variable) is not torch.Tensor or not variable.is_leaf:  # a subclass would run code of its own
        return {}
    return storages_of([variable] if type(variable.grad) is not torch.Tensor else [variable, variable.grad])


def raw_saved(node: Any) -> Iterator[tuple[Any, torch.Tensor]]:
    """What one node saved, without what a hook of the user's would unpack: torch's own wrapper, and the tensor."""
    for name in _saved_names(type(node)):
        try:
            raw = getattr(node, name)
        except (RuntimeError, AttributeError):
            continue  # freed by backward
        for saved in raw if isinstance(raw, (tuple, list)) else (raw,):
            if getattr(saved, "unpack_hook", None) is None:
                data = getattr(saved, "data", None)
                if isinstance(data, torch.Tensor):
                    yield saved, data


def saved_tensors(node: Any) -> Iterator[torch.Tensor]:
    """The tensors that one node saved, as they lie there."""
    return (data for _, data in raw_saved(node))


def saved_storages(node: Any) -> dict[int, int]:
    """The storages that a graph saved for backward: key to bytes. What a checkpoint would recompute is not touched."""
    found: dict[int, int] = {}
    for current in iter_nodes((node,), MAX_NODES):
        found.update(storages_of(saved_tensors(current)))
    return found


def held_bytes(tensor: torch.Tensor, ignore: dict[int, int]) -> dict[int, int]:
    """What keeping one tensor keeps: its own storage and all that its graph saved, without those to ignore."""
    found = storages_of([tensor])
    if (node := graph_of(tensor)) is not None:
        found.update(saved_storages(node))
    return {key: size for key, size in found.items() if key not in ignore}


_names_of: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""Weakly: the class of a function of the user's may hold tensors in its closure, as those of captured graphs do."""


def _saved_names(kind: type) -> tuple[str, ...]:
    names = _names_of.get(kind)
    if names is None:
        names = _names_of[kind] = tuple(name for name in dir(kind) if name.startswith(_RAW))
    return names
