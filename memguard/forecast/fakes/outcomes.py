"""What an operator returns for arguments of a kind that was seen before: the fake mode is asked once for each kind.

PyTorch's fake mode has such a cache of its own, but takes most of a trace's time to answer from it.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from memguard.forecast.fakes.results import ABLE, Plan, Unknown, literal_plan, nothing, plan_of

_PLAIN = frozenset(
    (int, float, bool, complex, str, types.NoneType, torch.dtype, torch.layout, torch.device, torch.memory_format)
)
_SEQUENCES = frozenset((list, tuple, torch.Size))
_NOT_BY_KIND = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view))
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.lift.default)
_STRIDED = torch.strided
_UNSEEN = object()


@final
class Outcomes:
    """Results by the operator and the kinds of its arguments: shapes, strides, dtypes, devices, plain values.

    Args:
        fake_mode: Asked for every kind that is new, and each time where a kind does not tell all.
    """

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self._mode = fake_mode
        self._plans: dict[tuple[Any, ...], Plan | None] = {}
        self._by_kind: dict[Any, bool] = {}
        """Whether an operator's result depends on the kinds of its arguments alone."""
        self._of_lists: set[Any] = set()
        """Operators that do the same to each position of their lists."""

    def of(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What `func` returns for these arguments."""
        by_kind = self._by_kind.get(func)
        if by_kind is None:
            by_kind = self._by_kind[func] = _is_by_kind(func)
            if by_kind and func.name().startswith("aten::_foreach_"):
                self._of_lists.add(func)
        if not by_kind:
            return func(*args, **kwargs)
        parts: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        try:
            if func in self._of_lists:
                return self._each(func, args, kwargs, parts)
            self._describe(args, parts)
            for name, value in kwargs.items():
                if isinstance(value, torch.Tensor):
                    raise Unknown
                parts.append(name)
                self._describe((value,), parts)
        except Unknown:  # nothing that can be remembered: it runs as it is
            return func(*args, **kwargs)
        key = tuple(parts)
        plan: Any = self._plans.get(key, _UNSEEN)
        if plan is None:
            return func(*args, **kwargs)
        if plan is not _UNSEEN:
            return plan(args)
        out = func(*args, **kwargs)
        self._learn(key, args, out)
        return out

    def literal(self, func: Any, tensor: torch.Tensor) -> Any:
        """A number that the step wrote down, as a tensor on the host that keeps its value."""
        if not ABLE or type(tensor) is not torch.Tensor or tensor.dim() or tensor.device.type != "cpu":
            return func(tensor)
        key = (func, tensor.dtype, tensor.requires_grad, tensor.is_inference())
        plan: Any = self._plans.get(key, _UNSEEN)
        if plan is None:
            return func(tensor)
        if plan is not _UNSEEN:
            return plan((tensor,))
        out = func(tensor)
        try:
            self._plans[key] = literal_plan(self._mode, out)
        except Unknown:
            self._plans[key] = None
        return out

    def _learn(self, key: tuple[Any, ...], args: tuple[Any, ...], out: Any) -> None:
        try:
            self._plans[key] = plan_of(args, out)
        except Unknown:
            self._plans[key] = None

    def _each(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], parts: list[Any]) -> Any:
        """A result by position: the fake mode is asked for one position of each kind; numbers count by their type."""
        lists = [value for value in args if type(value) in (list, tuple)]
        if not lists or any(len(value) != len(lists[0]) for value in lists):
            raise Unknown
        for value in (*args, *kwargs, *kwargs.values()):
            if type(value) not in (list, tuple):
                if type(value) not in _PLAIN:
                    raise Unknown
                parts.append(value if type(value) is str else type(value))
        keys = [self._position_key(items, parts) for items in zip(*lists, strict=True)]
        new = {key: position for position, key in enumerate(keys) if key not in self._plans}
        if new:
            some = [[v[n] for n in new.values()] if type(v) in (list, tuple) else v for v in args]
            out = func(*some, **kwargs)
            for index, (key, position) in enumerate(new.items()):
                self._learn(key, tuple(v[position] for v in lists), None if out is None else out[index])
        plans = [self._plans[key] for key in keys]
        if None in plans:
            raise Unknown
        if nothing in plans:
            return None
        return [plan(items) for plan, items in zip(plans, zip(*lists, strict=True), strict=True) if plan is not None]

    def _position_key(self, items: tuple[Any, ...], common: list[Any]) -> tuple[Any, ...]:
        parts = [*common]
        for item in items:
            if type(item) in _PLAIN:
                parts.append(type(item))
            else:
                self._describe((item,), parts)
        return tuple(parts)

    def _describe(self, values: Iterable[Any], parts: list[Any]) -> None:
        """What operators can see of these arguments; 1 and 1.0 are told apart by their type."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.constant is not None or value.fake_mode is not self._mode or value.layout is not _STRIDED:
                    raise Unknown
                parts += (
                    value.dtype,
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.untyped_storage().nbytes(),
                    value.fake_device,
                    value.requires_grad,
                    value.is_conj(),
                    value.is_neg(),
                    value.is_inference(),
                )
            elif kind in _PLAIN:
                parts += (kind, value)
            elif kind in _SEQUENCES:
                parts += (kind, len(value))
                self._describe(value, parts)
            else:
                raise Unknown


def _is_by_kind(func: Any) -> bool:
    return (
        ABLE
        and isinstance(func, torch._ops.OpOverload)
        and func.namespace == "aten"
        and func not in _LIFTS
        and not _NOT_BY_KIND.intersection(func.tags)
    )
