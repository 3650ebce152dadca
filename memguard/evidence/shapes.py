"""Names, shapes and dtypes of a batch as hashable data; no tensor is kept."""

from __future__ import annotations

from typing import Any

import torch

from memguard.heap.attributes import is_tensor_class
from memguard.torch_objects.storages import unheard

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
    global _last
    last, described = _last
    if type(inputs) is tuple and len(inputs) == 1 and type(inputs[0]) is torch.Tensor and not inputs[0].is_nested:
        key: tuple[object, ...] | None = (inputs[0].dtype, inputs[0].shape)  # what `_plain` says, in each batch
    else:
        key = _plain(inputs)
    if key is not None:
        if key == last:  # as in most batches; to hash the nest takes longer than all the rest
            return described
        if (known := _known.get(key)) is not None:
            _last = key, known
            return known
    found: list[Entry] = []
    with unheard():
        _collect("", inputs, MAX_DEPTH, found)
    described = tuple(found)
    if key is not None:
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = described
        _last = key, described
    return described


_MOST = 1024
_known: dict[Any, tuple[Entry, ...]] = {}
"""Descriptions of plain batches, which are like earlier ones as a rule."""
_last: tuple[object, tuple[Entry, ...]] = None, ()


def _plain(inputs: object) -> tuple[object, ...] | None:
    """What tells the description of a tensor, or of a tuple or list of tensors; None for any other batch."""
    kind = type(inputs)
    try:
        if kind is torch.Tensor:
            return inputs.shape, inputs.dtype  # type: ignore[attr-defined]
        if (kind is list or kind is tuple) and len(inputs) <= MAX_ENTRIES:  # type: ignore[arg-type]
            key: list[object] = []
            for tensor in inputs:  # type: ignore[attr-defined]
                if type(tensor) is not torch.Tensor:
                    return None
                key.append(tensor.dtype)
                key.append(tensor.shape)
            return tuple(key)
    except RuntimeError:
        pass  # a nested tensor has no shape
    return None


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
    if is_tensor_class(kind):
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
