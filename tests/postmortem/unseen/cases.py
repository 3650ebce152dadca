"""A program that runs out of memory, what is right to say of it, and how its first advice is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.postmortem import scenarios

Read = Callable[[dict[str, Any]], Any]
"""From an advice to the program's ``fix``; None where it does not help."""


@dataclass(frozen=True)
class Case:
    """One program.

    Args:
        run: Takes the guard, the device, the fix or None, and a scale of the sizes.
        total: Of the device on which it fails at scale 1.
        causes: Those that are right.
        read: How the first advice is applied.
    """

    run: Callable[[Any, str, Any, int], None]
    total: str
    causes: set[str]
    read: Read


def by_value(advice: dict[str, Any]) -> Any:
    """The number that it proposes."""
    return advice["value"]


def by_optimizer(advice: dict[str, Any]) -> Any:
    """The optimizer that it proposes."""
    return scenarios.adafactor() if "torch.optim.Adafactor" in advice["text"] else None


def in_words(pattern: str) -> Read:
    """Whether it says what helps."""
    return lambda advice: True if re.search(pattern, advice["text"]) else None


def always(advice: dict[str, Any]) -> Any:
    """Whatever it says: the failure was not real."""
    return True
