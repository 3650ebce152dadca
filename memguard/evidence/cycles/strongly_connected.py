"""Strongly connected components of numbered objects, what they reach, and what breaks them."""

from __future__ import annotations

import collections
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

Edge = tuple[int, Hashable]
"""The number of an object that is referred to, and a label, which is None where nobody needs one."""


def circular_parts(edges: Sequence[Sequence[Edge]]) -> Iterator[list[int]]:
    """The strongly connected parts with a circle in them (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(edges)):
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        waiting.append(root)
        on_stack.add(root)
        while work:
            index, following = work[-1]
            for target, _ in following:
                if target not in order:
                    order[target] = low[target] = len(order)
                    waiting.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[index] = min(low[index], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[index])
                if low[index] == order[index]:
                    part = [waiting.pop()]
                    while part[-1] != index:
                        part.append(waiting.pop())
                    on_stack.difference_update(part)
                    if len(part) > 1 or any(target == index for target, _ in edges[index]):
                        yield part


def reached_from(part: list[int], edges: Sequence[Sequence[Edge]], steps: int) -> set[int]:
    """A part and what its objects lead to, up to a number of objects."""
    reached, front = set(part), list(part)
    while front and len(reached) < steps:
        for target, _ in edges[front.pop()]:
            if target not in reached:
                reached.add(target)
                front.append(target)
    return reached


def opens(
    part: Iterable[int], edges: Sequence[Sequence[Edge]], labels: Collection[Hashable], inside: Collection[int]
) -> bool:
    """Whether no circle is left without some references."""
    left = {index: [to for to, label in edges[index] if label not in labels and to in inside] for index in part}
    entries = collections.Counter(target for targets in left.values() for target in targets)
    free = [index for index in left if not entries[index]]
    done = 0
    while free:
        done += 1
        for target in left[free.pop()]:
            entries[target] -= 1
            if not entries[target]:
                free.append(target)
    return done == len(left)
