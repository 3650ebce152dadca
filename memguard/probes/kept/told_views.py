"""What is told of small views that keep large storages: once for each line, and again where they pin far more."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.facts import Fact, ViewsPinStorage
from memguard.probes.interface import Watch
from memguard.probes.kept.pins import Pin

MIN_TOLD_AGAIN = 4
"""Storages that a list which has got longer has in common with what was told of it."""
LARGER = 2
"""Times what was told of that views must pin to be told of once more, where the floor was seen to rise since."""


@final
class ToldViews:
    """Reports pinned storages, and remembers of which lines.

    Args:
        watch: The run.
        report: Takes the facts.
    """

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        self._watch, self._report = watch, report
        self._told: dict[tuple[str | None, int | None], ViewsPinStorage] = {}

    def tell(self, pins: tuple[Pin, ...], known: frozenset[int]) -> None:
        """Of views that pin what was confirmed.

        Args:
            pins: All that was found.
            known: Storages that several rounds saw pinned.
        """
        watch = self._watch
        for pin in pins:
            where = (pin.place.file, pin.place.line)
            told = self._told.get(where)
            if told and told.since != watch.rises_since and pin.pinned_bytes >= LARGER * told.pinned_bytes:
                self.report_one(pin, grows=told.grows)
            if where in watch.told or not known & pin.storages:
                continue
            if any(is_told(storages, pin.storages) for storages in watch.pinned):
                continue  # where they were collected: a list that is handed on, or has got longer
            watch.told.add(where)
            self.report_one(pin, grows=False)

    def report_one(self, pin: Pin, *, grows: bool) -> None:
        """Of what views of one holder pin.

        Args:
            pin: That.
            grows: Whether more of them come with every batch.
        """
        self._watch.pinned.append(pin.storages)
        self._told[pin.place.file, pin.place.line] = fact = ViewsPinStorage(
            batch=self._watch.batch,
            stage=self._watch.stage,
            place=pin.place,
            views=pin.views,
            used_bytes=pin.used_bytes,
            pinned_bytes=pin.pinned_bytes,
            grows=grows,
            since=self._watch.rises_since,
        )
        self._report(fact)


def is_told(told: frozenset[int], storages: frozenset[int]) -> bool:
    """Whether most of either are among the others; a few may be others by now, at an address that came again."""
    common = len(told & storages)
    return 2 * common >= len(storages) or (common >= MIN_TOLD_AGAIN and 2 * common >= len(told))
