"""What a batch looks like: names, shapes and dtypes of its tensors, as plain hashable data; no tensor is kept."""

from __future__ import annotations

from typing import Any

import torch

MAX_ENTRIES = 16
MAX_DEPTH = 4

Entry = tuple[str, tuple[int, ...], str]
"""Name, shape, dtype."""


def describe_shapes(inputs: object) -> tuple[Entry, ...]:
    """The tensors of a batch, like ``(("image", (32, 3, 224, 224), "float32"), ("label", (32,), "int64"))``.

    Args:
        inputs: A tensor, or a nest of tuples, lists and dicts of them; what is neither is passed over. Positions
            become names like ``"0"``, nested ones ``"0.mask"``. At most 16 tensors are described.
    """
    if type(inputs) is torch.Tensor and not inputs.is_nested:
        return (("", tuple(inputs.shape), _names.get(inputs.dtype) or _name(inputs.dtype)),)
    if type(inputs) is tuple and len(inputs) == 1 and type(only := inputs[0]) is torch.Tensor and not only.is_nested:
        return (("0", tuple(only.shape), _names.get(only.dtype) or _name(only.dtype)),)
    found: list[Entry] = []
    _collect("", inputs, MAX_DEPTH, found)
    return tuple(found)


def count_elements(shapes: tuple[Entry, ...]) -> int:
    """Elements of all the tensors described."""
    total = 0
    for _, shape, _ in shapes:
        product = 1
        for length in shape:
            product *= length
        total += product
    return total


_names: dict[torch.dtype, str] = {}


def _name(dtype: torch.dtype) -> str:
    name = _names[dtype] = str(dtype).removeprefix("torch.")
    return name


def _collect(name: str, value: Any, depth: int, found: list[Entry]) -> None:
    if len(found) >= MAX_ENTRIES:
        return
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        try:
            found.append((name, tuple(value.shape), _names.get(value.dtype) or _name(value.dtype)))
        except (RuntimeError, TypeError):
            return  # a nested tensor's ragged shape has no numbers
    elif depth <= 0:
        return
    elif issubclass(kind, dict):
        for key, item in list(dict.items(value))[:64]:
            _collect(f"{name}.{key}" if name else str(key), item, depth - 1, found)
    elif issubclass(kind, (tuple, list)):
        for index, item in enumerate(value[:64]):
            _collect(f"{name}.{index}" if name else str(index), item, depth - 1, found)
    elif not name and hasattr(kind, "data") and issubclass(type(attributes := getattr(value, "__dict__", None)), dict):
        _collect("", attributes, depth - 1, found)  # a BatchEncoding or PackedSequence-like batch
