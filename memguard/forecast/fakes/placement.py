"""Where a step's tensors are: model, optimizer and data, brought to the fake GPU from wherever they were made."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import Optimizer

from memguard.errors import MemGuardError
from memguard.forecast.fakes.tensors import inside
from memguard.forecast.tracer import Tracer
from memguard.torch_objects.module_parts import children_of

_DEPTH = 3


@final
class Placement:
    """Parameters, buffers and optimizer states of a model on the CPU or a real GPU, put on the fake one."""

    def __init__(self, tracer: Tracer, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
        self._tracer = tracer
        self._model = model
        self._optimizers = optimizers
        self._originals: list[torch.Tensor] = []

    def move(self) -> None:
        """Move what is not there yet, in the order in which `model.cuda()` would."""
        tensors = list(in_apply_order(self._model)) if self._model is not None else []
        known = {id(tensor) for _, tensor in tensors}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                tensors += [("parameters", p) for p in group["params"] if id(p) not in known]
        sharded = any(inside(tensor)[0] is not tensor for _, tensor in tensors)
        tensors = [(owner, part) for owner, tensor in tensors for part in inside(tensor)]
        elsewhere = {t.device.type for _, t in tensors} - {"cpu", "cuda", "meta"}
        if elsewhere:
            raise MemGuardError(
                f"the model is on {', '.join(sorted(elsewhere))}, and a forecast knows CUDA's kernels only: put it on "
                "cuda, or leave it on the CPU"
            )
        on_gpu = any(isinstance(t, FakeTensor) and t.fake_device.type == "cuda" for _, t in tensors)
        real_gpu = any(not isinstance(t, FakeTensor) and t.is_cuda for _, t in tensors)
        self._tracer.everything_on_gpu = bool(tensors) and not (on_gpu or real_gpu or sharded)
        with _without_weak_references(self._model):
            for owner, tensor in tensors:
                self._place(owner, tensor)
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for key, value in state.items() if isinstance(state, dict) else ():
                    if isinstance(value, torch.Tensor) and (value.dim() or value.is_cuda):
                        state[key] = self._tracer.fake_of(value, self._tracer.cuda)
                        self._own("optimizer states", state[key])

    def bring(self, step: Callable[[], Any]) -> None:
        """Put the step's own tensors where they are to be, with the batch size that is asked for."""
        setting, tracer = self._tracer.setting, self._tracer
        wanted = setting.traced_batch
        model_tensors = {id(tensor) for _, tensor in in_apply_order(self._model)} if self._model is not None else set()
        for tensor in _tensors_of(step):
            if id(tensor) in model_tensors or not tensor.is_leaf or tensor.requires_grad:
                continue
            on_gpu = tensor.is_cuda or tracer.everything_on_gpu
            shape = None
            if wanted is not None and setting.batch is not None and wanted != setting.batch:
                shape = _resized(tensor.shape, setting.batch, wanted)
            if shape is not None:
                tracer.resized = True
                fake = torch.empty(shape, dtype=tensor.dtype, device="cuda" if on_gpu else "cpu")
            elif on_gpu and not (isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"):
                tracer.copy_of(tensor, tracer.cuda)
                continue
            else:
                continue
            torch.utils.swap_tensors(tensor, fake)
            self._originals.append(fake)
            if on_gpu:
                self._own("inputs", tensor)

    def _place(self, owner: str, tensor: torch.Tensor) -> None:
        if not (isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"):
            if not (self._tracer.everything_on_gpu or tensor.is_cuda):
                return
            gradient = tensor.grad
            hooks = list((getattr(tensor, "_post_accumulate_grad_hooks", None) or {}).values())
            fake: torch.Tensor = self._tracer.fake_of(tensor, self._tracer.cuda)
            if isinstance(tensor, nn.Parameter):
                fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
            torch.utils.swap_tensors(tensor, fake)
            self._originals.append(fake)
            if gradient is not None:
                tensor.grad = self._tracer.fake_of(gradient, self._tracer.cuda)
                self._own("gradients", tensor.grad)
            for hook in hooks:
                tensor.register_post_accumulate_grad_hook(hook)
        self._own(owner, tensor)

    def _own(self, owner: str, tensor: torch.Tensor) -> None:
        self._tracer.owners[self._tracer.storage(tensor, self._tracer.sites.setup)] = owner


@contextlib.contextmanager
def _without_weak_references(model: nn.Module | None) -> Iterator[None]:
    """Recurrent layers refer to their weights weakly, and such weights cannot be swapped; `Module.to` does the same."""
    recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)] if model is not None else []
    for module in recurrent:
        module._flat_weight_refs = []
    yield
    for module in recurrent:
        module._flat_weight_refs = [None if each is None else weakref.ref(each) for each in module._flat_weights]


def in_apply_order(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Each parameter and buffer once, children first, as `Module.to` visits them."""
    seen: set[int] = set()

    def visit(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
        for child in children_of(module):
            yield from visit(child)
        for owner, tensors in (("parameters", module._parameters), ("buffers", module._buffers)):
            for tensor in tensors.values():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield owner, tensor

    return visit(module)


def _tensors_of(step: Callable[..., Any]) -> Iterator[torch.Tensor]:
    """Tensors that a function reaches by its closure, defaults, and the global names it uses."""
    function = getattr(step, "__func__", step)
    held: list[Any] = [getattr(step, "__self__", None), *(getattr(function, "__defaults__", None) or ())]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not yet filled
            continue
    code = getattr(function, "__code__", None)
    names = getattr(function, "__globals__", {})
    held += [names[name] for name in (code.co_names if code is not None else ()) if name in names]
    seen: set[int] = set()
    for value in held:
        yield from _inside(value, seen, _DEPTH)


def _inside(value: Any, seen: set[int], depth: int) -> Iterator[torch.Tensor]:
    if id(value) in seen or depth < 0 or isinstance(value, (nn.Module, torch.optim.Optimizer)):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _inside(item, seen, depth - 1)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _inside(item, seen, depth - 1)


def _resized(shape: torch.Size, batch: int, wanted: int) -> list[int] | None:
    """The shape for another batch size, None if its first dimension is not the batch."""
    if len(shape) == 0 or shape[0] != batch:
        return None
    return [wanted, *shape[1:]]
