"""How to make a fake tensor again that is in all the same as one that PyTorch's fake mode made.

Private names checked with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

Plan = Callable[[tuple[Any, ...]], Any]
"""Makes a result from the arguments."""
without_dispatch: Any = getattr(torch._C, "_DisableTorchDispatch", None)
_no_data: Any = getattr(torch._C, "_set_throw_on_mutable_data_ptr", None)
_keys_of: Any = getattr(torch._C, "_dispatch_key_set", None)
_subclass: Any = getattr(torch.Tensor, "_make_subclass", None)
ABLE = None not in (without_dispatch, _no_data, _keys_of, _subclass)
"""Whether this PyTorch has what is needed here."""


class Unknown(Exception):
    """An argument or a result whose kind does not tell all."""


def plan_of(args: tuple[Any, ...], out: Any) -> Plan:
    """How to make `out` again from arguments of the same kinds.

    Raises:
        Unknown: A copy would not be the same in all that can be seen.
    """
    if out is None:
        return nothing
    if type(out) in (bool, int, float):
        return lambda given: out
    if type(out) in (list, tuple):
        plans = [plan_of(args, item) for item in out]
        tensors = [item for item in out if isinstance(item, torch.Tensor)]
        fresh = [tensor.untyped_storage()._cdata for tensor in tensors if _home(args, tensor) is None]
        if len(set(fresh)) != len(fresh):
            raise Unknown  # they share memory
        sequence = type(out)
        return lambda given: sequence(plan(given) for plan in plans)
    if type(out) is not FakeTensor or out.layout is not torch.strided:
        raise Unknown
    for position, value in enumerate(args):
        if value is out:
            return lambda given: given[position]
    return _tensor(args, out)


def literal_plan(mode: FakeTensorMode, out: Any) -> Plan:
    """How to make a number that the step wrote down: a tensor on the host that keeps the value of the one argument."""
    remember = getattr(mode.fake_tensor_converter, "add_constant_storage_mapping", None)
    if type(out) is not FakeTensor or type(out.constant) is not torch.Tensor or remember is None:
        raise Unknown
    value, out.constant = out.constant, None
    try:
        make = _tensor((), out)
    finally:
        out.constant = value

    def literal(given: tuple[Any, ...]) -> Any:
        made = make(())
        with without_dispatch():
            made.constant = given[0].clone()
        remember(made)
        return made

    return literal


def nothing(given: tuple[Any, ...]) -> None:
    """The plan of an operator that returns nothing."""


def _tensor(args: tuple[Any, ...], out: FakeTensor) -> Plan:
    """How to make a new tensor, or a new view of an argument."""
    dtype, shape, stride, offset, device = out.dtype, out.shape, out.stride(), out.storage_offset(), out.fake_device
    state = dict(vars(out))
    if any(value is not None for name, value in state.items() if name not in ("fake_mode", "_fake_device")):
        raise Unknown
    home = _home(args, out)
    empty, meta = torch.empty_strided, torch.device("meta")

    def make(given: tuple[Any, ...]) -> Any:
        with without_dispatch():
            base = empty(shape, stride, dtype=dtype, device=meta)
            if home is not None:
                base.set_(given[home].untyped_storage(), offset, shape, stride)
            made = _subclass(FakeTensor, base, False, dispatch_device=True, device_for_backend_keys=device)
        _no_data(made)
        made.__dict__.update(state)
        return made

    if not _same(make(args), out):
        raise Unknown
    return make


def _home(args: tuple[Any, ...], out: torch.Tensor) -> int | None:
    """Which argument's memory a result lies in; None if in memory of its own."""
    address = out.untyped_storage()._cdata
    for position, value in enumerate(args):
        if type(value) is FakeTensor:
            if value.untyped_storage()._cdata == address:
                return position
        elif type(value) in (list, tuple):
            for item in value:
                if isinstance(item, torch.Tensor) and item.untyped_storage()._cdata == address:
                    raise Unknown
    return None


def _same(made: Any, out: Any) -> bool:
    """Whether nothing tells a copy from what the fake mode made."""
    return (
        _keys_of(made) == _keys_of(out)
        and vars(made) == vars(out)
        and (made.dtype, made.shape, made.stride(), made.storage_offset())
        == (out.dtype, out.shape, out.stride(), out.storage_offset())
        and made.untyped_storage().nbytes() == out.untyped_storage().nbytes()
        and (made.requires_grad, made.is_conj(), made.is_neg(), made.is_inference(), made._is_view())
        == (out.requires_grad, out.is_conj(), out.is_neg(), out.is_inference(), out._is_view())
    )
