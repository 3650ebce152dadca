"""What PyTorch works out for every rank, or for every parameter of a list, worked out once: the same, much sooner.

Only a traced child process installs it. Checked with torch 2.13.0 and 2.15.0; where the functions are not there,
nothing changes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, final

import torch

_OF_LISTS = ("aten::_foreach_", "aten::_fused_")
_LISTS = (list, tuple)


def hasten_sharding() -> None:
    """Let a rank ask for its own shard only, and for the sharding of parameters that are alike once."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    if hasattr(_fsdp_common, "_chunk_with_empty"):
        replace(_fsdp_common._chunk_with_empty, lambda _: _Chunks)
    if hasattr(ShardingPropagator, "propagate_op_sharding_non_cached"):
        replace(ShardingPropagator.propagate_op_sharding_non_cached, _by_position)


@final
class _Chunks(Sequence[torch.Tensor]):
    """As `torch.chunk` with empty ones at the end; each is made when it is asked for, and a rank asks for two."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim
        self._size = -(-tensor.size(dim) // num_chunks)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        index = range(self._count)[index]
        if not isinstance(index, int):
            return [self[one] for one in index]
        start, end = (min(each * self._size, self._tensor.size(self._dim)) for each in (index, index + 1))
        return self._tensor.narrow(self._dim, start, end - start)


def _by_position(before: Callable[..., Any]) -> Callable[..., Any]:
    """An operator on lists does the same at each position: positions that are alike are worked out once."""

    def propagate(self: Any, schema: Any) -> Any:
        chosen = _unlike(schema) if schema.op.name().startswith(_OF_LISTS) else None
        if chosen is None:
            return before(self, schema)
        firsts, place = chosen
        some = type(schema)(
            schema.op, _each(schema.args_schema, firsts), schema.kwargs_schema, schema_info=schema.schema_info
        )
        found = before(self, some)
        if type(found.output_spec) in _LISTS:
            found.output_spec = _each((found.output_spec,), place)[0]
        if found.redistribute_schema is not None:
            wanted = found.redistribute_schema
            found.redistribute_schema = type(schema)(
                wanted.op, _each(wanted.args_schema, place), schema.kwargs_schema, schema_info=wanted.schema_info
            )
        return found

    return propagate


def _unlike(schema: Any) -> tuple[list[int], list[int]] | None:
    """The first position of each kind, and each position's kind; None if they cannot be compared, or all differ."""
    lists = [value for value in schema.args_schema if type(value) in _LISTS and value]
    if not lists or len({len(value) for value in lists}) > 1:
        return None
    if any(type(value) in _LISTS for value in schema.kwargs_schema.values()):
        return None
    kinds: dict[Any, int] = {}
    firsts: list[int] = []
    place: list[int] = []
    try:
        for position, items in enumerate(zip(*lists, strict=True)):
            kind = kinds.setdefault((items, tuple(map(type, items))), len(firsts))
            if kind == len(firsts):
                firsts.append(position)
            place.append(kind)
    except TypeError:  # sizes that are symbols
        return None
    return (firsts, place) if len(firsts) < len(place) else None


def _each(values: Sequence[Any], positions: list[int]) -> tuple[Any, ...]:
    """These positions of every list among the values."""
    return tuple(
        type(value)(value[position] for position in positions) if type(value) in _LISTS and value else value
        for value in values
    )


def replace(function: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Let a function run another one, for the rest of this process; decorators around it stay.

    Args:
        function: Written in Python, without variables of an enclosing function.
        make: Given what the function did until now, returns what it is to do.
    """
    inner = inspect.unwrap(function)
    before = FunctionType(inner.__code__, inner.__globals__, inner.__name__, inner.__defaults__, inner.__closure__)
    before.__kwdefaults__ = inner.__kwdefaults__
    key = f"_memguard_{inner.__name__}"
    inner.__globals__[key] = make(before)
    made: dict[str, Any] = {}
    exec(f"def {inner.__name__}(*args, **kwargs): return {key}(*args, **kwargs)", {}, made)
    inner.__defaults__ = inner.__kwdefaults__ = None
    inner.__code__ = made[inner.__name__].__code__
