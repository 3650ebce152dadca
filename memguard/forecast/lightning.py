"""A LightningModule as model, optimizers and step: its own training step on one batch, as Lightning's loop runs it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from memguard.errors import MemGuardError
from memguard.forecast.session import Made
from memguard.torch_objects.module_parts import buffers_of, parameters_of

_TRUE = {"bf16-true": torch.bfloat16, "16-true": torch.float16, "64-true": torch.float64}
_MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def lightning_made(
    module: Any,
    *,
    batch: Any = None,
    optimizers: Any = None,
    precision: str = "32-true",
    accumulate_grad_batches: int = 1,
    gradient_clip_val: float | None = None,
    gradient_clip_algorithm: str | None = None,
) -> Made:
    """Model, optimizers and step of a LightningModule; called inside a trace, whose process it may change.

    Args:
        module: The LightningModule, without or with a trainer.
        batch: One batch; by default the first of ``module.train_dataloader()``.
        optimizers: By default what ``configure_optimizers`` returns.
        precision: Of the Trainer; a mixed one runs the training step under autocast.
        accumulate_grad_batches: Of the Trainer.
        gradient_clip_val: Of the Trainer.
        gradient_clip_algorithm: Of the Trainer; "norm" by default.

    Raises:
        MemGuardError: There is no batch to be had, or the precision is not known.
    """
    if precision not in ("32-true", "32", 32, *_TRUE, *_MIXED):
        raise MemGuardError(
            f"a forecast knows no precision {precision!r}; it knows 32-true, {', '.join([*_TRUE, *_MIXED])}"
        )
    if batch is None:
        batch = _first_batch(module)
    module.train()
    dtype = _TRUE.get(precision)
    if dtype is not None:
        module.to(dtype)
        batch = _converted(batch, dtype)
    if optimizers is None:
        optimizers = module.configure_optimizers()
    found = list(_optimizers(optimizers))
    _stand_in_for_trainer(module, found)
    loop = _Loop(
        module,
        found,
        precision=precision,
        accumulate_grad_batches=accumulate_grad_batches,
        gradient_clip_val=gradient_clip_val,
        gradient_clip_algorithm=gradient_clip_algorithm,
    )
    run = loop.automatic if getattr(module, "automatic_optimization", True) else loop.manual
    return module, found, lambda: run(batch)  # in the closure, where a forecast looks for inputs to resize


@final
class _Loop:
    """One step of Lightning's loop on one batch; the options are those of `lightning_made`."""

    def __init__(
        self,
        module: Any,
        optimizers: list[Optimizer],
        *,
        precision: str,
        accumulate_grad_batches: int,
        gradient_clip_val: float | None,
        gradient_clip_algorithm: str | None,
    ) -> None:
        self._module, self._optimizers = module, optimizers
        self._mixed = _MIXED.get(precision)
        self._times = accumulate_grad_batches
        self._clip_val, self._clip_algorithm = gradient_clip_val, gradient_clip_algorithm
        self._scaler = torch.amp.GradScaler("cuda", enabled=precision == "16-mixed")
        self._numbered = _takes_number(module.training_step)
        self._transfers = _is_on_gpu(module)

    def manual(self, batch: Any) -> None:
        """The training step does all by itself."""
        for number in range(self._times):
            self._training_step(batch, number)

    def automatic(self, batch: Any) -> None:
        """Backward and the optimizers follow the training step."""
        for number in range(self._times):
            loss = self._training_step(batch, number)
            if loss is None:
                return
            loss = loss / self._times  # a new tensor, as in Lightning: what the step returned is let go
            if number == 0:
                for optimizer in self._optimizers:
                    optimizer.zero_grad()
            self._scaler.scale(loss).backward()
        for optimizer in self._optimizers:
            if self._clip_val:
                self._scaler.unscale_(optimizer)
                _clip(optimizer, self._clip_val, self._clip_algorithm)
            self._scaler.step(optimizer)
        self._scaler.update()

    def _training_step(self, batch: Any, number: int) -> Any:
        """The loss, or None."""
        on_gpu = _to_gpu(batch) if self._transfers else batch
        args = (on_gpu, number) if self._numbered else (on_gpu,)
        with torch.autocast("cuda", dtype=self._mixed) if self._mixed else contextlib.nullcontext():
            result = self._module.training_step(*args)
        return result.get("loss") if isinstance(result, Mapping) else result


def _stand_in_for_trainer(module: Any, optimizers: list[Optimizer]) -> None:
    """What a training step asks of its trainer: logging goes nowhere, backward and optimizers are the plain ones."""

    def toggle(optimizer: Optimizer, *_: Any, **__: Any) -> None:
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        toggled[:] = [p for p in parameters_of(module) if id(p) not in own and p.requires_grad]
        for parameter in toggled:
            parameter.requires_grad_(False)

    def untoggle(*_: Any, **__: Any) -> None:
        for parameter in toggled:
            parameter.requires_grad_(True)
        toggled.clear()

    @contextlib.contextmanager
    def toggled_optimizer(optimizer: Optimizer, *_: Any, **__: Any) -> Any:
        toggle(optimizer)
        yield
        untoggle()

    def clip(optimizer: Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None) -> None:
        if gradient_clip_val:
            _clip(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def backward(loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        loss.backward(*args, **kwargs)

    toggled: list[nn.Parameter] = []
    for name in ("log", "log_dict", "print"):
        object.__setattr__(module, name, _nothing)
    object.__setattr__(module, "optimizers", lambda *_, **__: optimizers[0] if len(optimizers) == 1 else optimizers)
    object.__setattr__(module, "lr_schedulers", lambda: _Scheduler())
    object.__setattr__(module, "manual_backward", backward)
    object.__setattr__(module, "toggle_optimizer", toggle)
    object.__setattr__(module, "untoggle_optimizer", untoggle)
    object.__setattr__(module, "toggled_optimizer", toggled_optimizer)
    object.__setattr__(module, "clip_gradients", clip)


class _Scheduler:
    """Any number of learning rate schedulers, which hold no memory."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    def __iter__(self) -> Any:
        return iter((self, self))


def _clip(optimizer: Optimizer, value: float, algorithm: Any) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if str(getattr(algorithm, "value", algorithm)) == "value":
        nn.utils.clip_grad_value_(parameters, value)
    else:
        nn.utils.clip_grad_norm_(parameters, value)


def _is_on_gpu(module: Any) -> bool:
    """Whether a module has been put on a GPU, real or fake.

    If not, the trace takes whatever the module meets to be on the GPU (`Placement.move`), the batch too: brought there
    as Lightning does, it would be counted twice.
    """
    tensors = [*parameters_of(module), *buffers_of(module)]
    return not tensors or any(tensor.device.type == "cuda" for tensor in tensors)


def _takes_number(training_step: Any) -> bool:
    """Whether the training step wants the batch's number too."""
    parameters = inspect.signature(training_step).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(named) > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters)


def _first_batch(module: Any) -> Any:
    """The first batch, made of ordinary tensors and in this process."""
    with _disable_current_modes():
        try:
            loader = module.train_dataloader()
            if getattr(loader, "num_workers", 0):
                loader.num_workers, loader.timeout = 0, 0
        except Exception as error:
            raise MemGuardError(f"{type(module).__name__}.train_dataloader() gives no batch: {error}") from None
        for batch in loader:
            return batch
    raise MemGuardError(f"{type(module).__name__}.train_dataloader() is empty")


def _optimizers(given: Any) -> Iterable[Optimizer]:
    """The optimizers in any form that ``configure_optimizers`` may return."""
    if isinstance(given, Optimizer):
        yield given
    elif isinstance(given, Mapping):
        yield from _optimizers(given.get("optimizer"))
    elif isinstance(given, (list, tuple)):
        for item in given:
            yield from _optimizers(item)


def _to_gpu(value: Any) -> Any:
    return _mapped(value, lambda tensor: tensor.to("cuda"))


def _converted(value: Any, dtype: torch.dtype) -> Any:
    return _mapped(value, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return type(value)({key: _mapped(item, change) for key, item in value.items()})  # type: ignore[call-arg]
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _nothing(*_: Any, **__: Any) -> None:
    """Logging during a trace goes nowhere."""
