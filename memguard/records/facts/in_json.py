"""Facts to JSON and back, as recordings store them."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from memguard.records.facts import device, graphs, on_host, python_objects, storages, training
from memguard.records.facts.fact import Fact, Place
from memguard.records.stats import Stage

KINDS: dict[str, type[Fact]] = {
    name: kind
    for subject in (graphs, storages, on_host, python_objects, training, device)
    for name, kind in vars(subject).items()
    if isinstance(kind, type) and issubclass(kind, Fact) and kind is not Fact
}
"""Every kind of fact, by its name in files."""


def to_json(fact: Fact) -> dict[str, Any]:
    """A fact as JSON data, its kind under ``fact``."""
    return {"fact": type(fact).__name__, **asdict(fact), "stage": fact.stage.value}


def from_json(data: dict[str, Any]) -> Fact | None:
    """The fact that `to_json` wrote; unknown keys are left out, an unknown kind is None.

    Raises:
        TypeError, ValueError: The data lacks a field of its kind, or has no fact at all.
    """
    kind = KINDS.get(str(data.get("fact")))
    if kind is None:
        return None
    known = {field.name: _tuples(data[field.name]) for field in fields(kind) if field.name in data}
    known["stage"] = Stage(known.get("stage", Stage.OTHER.value))
    known["place"] = known.get("place") or {}
    values: dict[str, Any] = {name: _place(v) if isinstance(v, dict) else v for name, v in known.items()}
    return kind(**values)


def _place(data: dict[str, Any]) -> Place:
    return Place(**{key: value for key, value in data.items() if key in Place.__dataclass_fields__})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
