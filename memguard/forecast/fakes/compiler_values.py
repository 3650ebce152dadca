"""What the compiler computes and makes while it compiles: known numbers, states of optimizers, of random numbers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_CPU = torch.device("cpu")


def pass_random_states(tracer: Tracer) -> None:
    """What is recomputed draws the same random numbers: the operator runs with a generator's state, here without."""
    from torch._prims import rng_prims

    operator: Any = getattr(rng_prims, "graphsafe_run_with_rng_state", None)
    if operator is None or type(tracer) in operator.python_key_table:
        return

    def run(mode: Tracer, func: Any, *args: Any, rng_state: Any = None, **kwargs: Any) -> Any:
        with mode:
            return func(*args, **kwargs)

    operator.py_impl(type(tracer))(run)


def trace_first_states(tracer: Tracer) -> None:
    """The compiler lets an optimizer make its states while it compiles the step: these stay."""

    def traced(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def run(*args: Any, **kwargs: Any) -> Any:
            if tracer in _get_current_dispatch_mode_stack():
                return make(*args, **kwargs)
            with tracer.fake_mode, tracer:
                return make(*args, **kwargs)

        return run

    waiting: list[Any] = [torch.optim.Optimizer]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "_init_group" in vars(kind):
            kind._init_group = traced(kind._init_group)


class _StayingOnHosts(TorchDispatchMode):
    """A number whose value is known is not put on a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = func is torch.ops.prims.device_put.default and type(args[0]) is torch.Tensor
        return args[0] if known else self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)


class _OnHosts(_StayingOnHosts):
    """And what is made for a device is made on the host."""

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **({**kwargs, "device": _CPU} if "device" in kwargs else kwargs))


def fold_constants_on_hosts() -> None:
    """The compiler computes with single numbers whose value it knows, on the device where they would be."""
    from torch._inductor import constant_folding
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    setattr(FakeTensorMode, "avoid_device_init", property(lambda _: True))  # noqa: B010
    proxied: Any = ProxyTorchDispatchMode
    dispatch, put = proxied.__torch_dispatch__, torch.ops.prims.device_put.default

    def put_on_hosts(self: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        with _StayingOnHosts() if func is put else contextlib.nullcontext():  # type: ignore[no-untyped-call]
            return dispatch(self, func, *args, **kwargs)

    proxied.__torch_dispatch__ = put_on_hosts

    folder: Any = constant_folding.ConstantFolder
    run = folder.run

    @functools.wraps(run)
    def run_on_hosts(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _OnHosts():  # type: ignore[no-untyped-call]
            return run(self, *args, **kwargs)

    folder.run = run_on_hosts
