"""How long the samples of a dataset are, as far as its attributes show without asking for a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch

MAX_SAMPLES = 200_000
MIN_SAMPLES = 16
MAX_DIMENSIONS = 3
_WORDS = ("len", "size", "dur", "frames", "tokens", "count")
_TEXT = (str, bytes)


def lengths_in(attributes: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Each reading of an attribute as the samples' lengths: (its name, a length for each sample).

    A list of sequences, of tensors (by each of their dimensions) or of records of them; or numbers under a name that
    says what they are.
    """
    for name, value in attributes.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            yield name, numbers
        elif type(value) in (list, tuple) and len(value) >= MIN_SAMPLES:
            first = value[0]
            samples = value[:MAX_SAMPLES]
            if type(first) is dict:
                for key in islice(first, 16):
                    yield from _named(name, [sample.get(key) for sample in samples if type(sample) is dict])
            elif type(first) is tuple:
                for index in range(min(len(first), 8)):
                    yield from _named(name, [s[index] for s in samples if type(s) is tuple and index < len(s)])
            else:
                yield from _named(name, samples)


def _named(name: str, samples: Iterable[Any]) -> Iterator[tuple[str, list[int]]]:
    shapes = [shape for sample in samples if (shape := _shape(sample)) is not None]
    if len(shapes) < MIN_SAMPLES:
        return
    for dimension in range(min(min(map(len, shapes)), MAX_DIMENSIONS)):
        lengths = [shape[dimension] for shape in shapes]
        if min(lengths) != max(lengths):
            yield name, lengths


def _shape(sample: Any) -> tuple[int, ...] | None:
    kind = type(sample)
    if kind is torch.Tensor:
        return tuple(sample.shape) or None
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return tuple(sample.shape) or None
    if kind in (list, tuple, *_TEXT):
        return (len(sample),)
    return None


def _numbers(name: str, value: Any) -> list[int] | None:
    if not any(word in name.lower() for word in _WORDS):
        return None
    kind = type(value)
    if kind is torch.Tensor or (kind.__module__ == "numpy" and kind.__name__ == "ndarray"):
        if len(value.shape) != 1 or value.shape[0] < MIN_SAMPLES or "int" not in str(value.dtype):
            return None
        return [int(number) for number in value[:MAX_SAMPLES].tolist()]
    if kind in (list, tuple) and len(value) >= MIN_SAMPLES and all(type(number) is int for number in value[:64]):
        return [number for number in value[:MAX_SAMPLES] if type(number) is int]
    return None
