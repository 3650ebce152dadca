"""One trace from start to end, inside the child process: fake GPU, model, steps."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_module
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils import _foreach_utils

from memguard.errors import MemGuardError
from memguard.forecast.attention import install_attention
from memguard.forecast.changes import HALF_BATCH, accumulated_twice, apply_change
from memguard.forecast.device_guard import install_device_guard
from memguard.forecast.distributed import stand_in_for_process_group
from memguard.forecast.fake_gpu import become_gpu
from memguard.forecast.fake_speed import hasten_fake_tensors
from memguard.forecast.fused_norm import install_group_norm, install_rms_norm
from memguard.forecast.inputs import resized, tensors_of
from memguard.forecast.owners import settle
from memguard.forecast.recurrent import count_recurrent_layers
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind, Trace
from memguard.forecast.tracer import Tracer
from memguard.forecast.without_dynamo import keep_distributed_tensors_out, keep_dynamo_out

Step = Callable[[], Any]
Made = tuple[nn.Module | None, Any, Step]
"""Model, optimizer (or several, or None), and the function that does one training step."""


def trace(make: Callable[[], Made], setting: Setting) -> Trace:
    """Run the steps on fake tensors and write down their memory. Changes this process for good.

    Args:
        make: Returns model, optimizer and step; tensors that it creates are fake too.
        setting: Number of steps and the GPU to imitate.
    """
    keep_dynamo_out()
    keep_distributed_tensors_out()
    install_device_guard()
    hasten_fake_tensors()
    torch.autograd.set_multithreading_enabled(False)
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    tracer = Tracer(fake_mode, setting)
    become_gpu(
        name=setting.name,
        total_bytes=setting.total_bytes,
        compute_capability=setting.compute_capability,
        allocated_bytes=lambda: tracer.allocated_bytes,
        empty_cache=lambda: tracer.mark(Kind.EMPTY_CACHE),
    )
    _prepare_torch(tracer)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is the purpose
        kept = [install_attention(tracer), install_rms_norm(tracer), install_group_norm(tracer), _undecomposed()]
    with fake_mode, tracer:
        model, optimizers, step = make()
        optimizers = _optimizers(optimizers)
        apply_change(setting.change, model, optimizers)
        if setting.change == HALF_BATCH.name:
            step = accumulated_twice(step, optimizers)
        placed = _Placement(tracer, model, optimizers)
        placed.move()
        placed.bring(step)
        hooks = _watch(tracer, model, optimizers)
        tracer.sites.stepping = True
        for number in range(setting.steps):
            tracer.mark(Kind.STEP, nbytes=number)
            step()
            hooks()
        tracer.mark(Kind.STEP, nbytes=setting.steps)
        if setting.traced_batch not in (None, setting.batch) and not tracer.resized:
            raise MemGuardError(
                f"no input of the step has the batch size {setting.batch} as its first dimension; let the function (or "
                "the step) take a parameter named batch"
            )
        if torch.backends.cudnn.benchmark and any(event.kind == Kind.CONVOLUTION for event in tracer.events):
            tracer.note("cudnn.benchmark is on: while it tries algorithms, the first step can be above the figure")
        result = tracer.trace(steps=setting.steps, batch=setting.traced_batch or setting.batch)
    settle(result)
    del kept  # until here they replaced PyTorch's
    return result


def _optimizers(given: Any) -> list[Optimizer]:
    if given is None:
        return []
    if isinstance(given, Optimizer):
        return [given]
    if isinstance(given, Iterable):
        return [optimizer for optimizer in given if isinstance(optimizer, Optimizer)]
    raise MemGuardError(f"the optimizer is a {type(given).__name__}, not a torch.optim.Optimizer or a list of them")


def _prepare_torch(tracer: Tracer) -> None:
    """The places where PyTorch would refuse to work on fake tensors."""
    swap = torch.utils.swap_tensors
    converter = tracer.fake_mode.fake_tensor_converter
    memo = converter.meta_converter.tensor_memo
    constants = converter.constant_storage_mapping

    @functools.wraps(swap)
    def swap_without_memo(left: torch.Tensor, right: torch.Tensor) -> None:
        memo.clear()
        tracer.forget(left)
        tracer.forget(right)
        for key in [
            key for key, fakes in constants.items() if any(fake() is left or fake() is right for fake in fakes)
        ]:
            del constants[key]
        swap(left, right)  # type: ignore[no-untyped-call]

    torch.utils.swap_tensors = swap_without_memo
    if torch.version.cuda is not None:
        # The engine asks the accelerator whether it has a context; CUDA without a driver answers with an error.
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

        _setup_privateuseone_for_python_backend("memguard_no_accelerator")
    only_lift = getattr(torch._C, "_set_only_lift_cpu_tensors", None)
    if only_lift is not None:
        only_lift(True)  # or torch.tensor(..., device="cuda") would ask the driver
    setattr(FakeTensor, "__deepcopy__", _deepcopy)  # noqa: B010 - mypy takes it for a method
    for module in (optimizer_module, _foreach_utils):
        supported: list[type] = getattr(module, "_foreach_supported_types", [])
        if FakeTensor not in supported:
            supported.append(FakeTensor)  # or optimizers would not choose their foreach form, the default on CUDA
    torch.compile = _compile(tracer)
    torch.ctc_loss = _ctc_loss(torch.ctc_loss)
    stand_in_for_process_group(tracer)
    count_recurrent_layers(tracer)


def _ctc_loss(ctc_loss: Callable[..., Any]) -> Callable[..., Any]:
    """Lengths may be on the host; for tensors of any kind PyTorch would take them to the GPU too late."""

    @functools.wraps(ctc_loss)
    def with_lengths_on_gpu(log_probs: Any, targets: Any, *lengths: Any, **options: Any) -> Any:
        lengths = tuple(v.to(log_probs.device) if isinstance(v, torch.Tensor) else v for v in lengths)
        return ctc_loss(log_probs, targets, *lengths, **options)

    return with_lengths_on_gpu


def _undecomposed() -> torch.library.Library:
    """Operators that have a CUDA kernel, but that a CPU build takes apart."""
    library = torch.library.Library("aten", "IMPL")
    for name in ("silu_backward", "mish_backward"):
        library.impl(name, torch.library.fallthrough_kernel, "AutogradCUDA")
    return library


def _deepcopy(tensor: FakeTensor, memo: dict[int, Any]) -> torch.Tensor:
    """A copy with memory of its own; PyTorch's way would leave two storages behind one fake tensor."""
    known = memo.get(id(tensor))
    if known is not None:
        return known  # type: ignore[no-any-return]
    with torch.no_grad():
        copied: torch.Tensor = tensor.detach().clone(memory_format=torch.preserve_format)
    if isinstance(tensor, nn.Parameter):
        copied = nn.Parameter(copied, requires_grad=tensor.requires_grad)
    else:
        copied.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        copied.grad = _deepcopy(tensor.grad, memo)  # type: ignore[arg-type]
    memo[id(tensor)] = copied
    return copied


def _compile(tracer: Tracer) -> Callable[..., Any]:
    def compile(model: Any = None, **_: Any) -> Any:
        tracer.note("torch.compile: forecast of the eager step, an upper bound; compiled code fuses and recomputes")
        return model if model is not None else lambda function: function

    return compile


@final
class _Placement:
    """Parameters, buffers and optimizer states of a model on the CPU or a real GPU, put on the fake one."""

    def __init__(self, tracer: Tracer, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
        self._tracer = tracer
        self._model = model
        self._optimizers = optimizers
        self._originals: list[torch.Tensor] = []

    def move(self) -> None:
        """Move what is not there yet, in the order in which `model.cuda()` would."""
        tensors = list(_in_apply_order(self._model)) if self._model is not None else []
        known = {id(tensor) for _, tensor in tensors}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                tensors += [("parameters", p) for p in group["params"] if id(p) not in known]
        elsewhere = {t.device.type for _, t in tensors} - {"cpu", "cuda", "meta"}
        if elsewhere:
            raise MemGuardError(
                f"the model is on {', '.join(sorted(elsewhere))}, and a forecast knows CUDA's kernels only: put it on "
                "cuda, or leave it on the CPU"
            )
        on_gpu = any(isinstance(t, FakeTensor) and t.fake_device.type == "cuda" for _, t in tensors)
        real_gpu = any(not isinstance(t, FakeTensor) and t.is_cuda for _, t in tensors)
        self._tracer.everything_on_gpu = bool(tensors) and not on_gpu and not real_gpu
        for owner, tensor in tensors:
            self._place(owner, tensor)
        for optimizer in self._optimizers:
            for state in optimizer.state.values():
                for key, value in state.items() if isinstance(state, dict) else ():
                    if isinstance(value, torch.Tensor) and (value.dim() or value.is_cuda):
                        state[key] = self._tracer.fake_of(value, torch.device("cuda", 0))
                        self._own("optimizer states", state[key])

    def bring(self, step: Step) -> None:
        """Put the step's own tensors where they are to be, with the batch size that is asked for."""
        setting, tracer = self._tracer.setting, self._tracer
        wanted = setting.traced_batch
        model_tensors = {id(tensor) for _, tensor in _in_apply_order(self._model)} if self._model is not None else set()
        for tensor in tensors_of(step):
            if id(tensor) in model_tensors or not tensor.is_leaf or tensor.requires_grad:
                continue
            on_gpu = tensor.is_cuda or tracer.everything_on_gpu
            shape = None
            if wanted is not None and setting.batch is not None and wanted != setting.batch:
                shape = resized(tensor.shape, setting.batch, wanted)
            if shape is not None:
                tracer.resized = True
                fake = torch.empty(shape, dtype=tensor.dtype, device="cuda" if on_gpu else "cpu")
            elif on_gpu and not (isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"):
                tracer.copy_of(tensor, torch.device("cuda", 0))
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
            fake: torch.Tensor = self._tracer.fake_of(tensor, torch.device("cuda", 0))
            if isinstance(tensor, nn.Parameter):
                fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
            torch.utils.swap_tensors(tensor, fake)
            self._originals.append(fake)
            if gradient is not None:
                tensor.grad = self._tracer.fake_of(gradient, torch.device("cuda", 0))
                self._own("gradients", tensor.grad)
            for hook in hooks:
                tensor.register_post_accumulate_grad_hook(hook)
        self._own(owner, tensor)

    def _own(self, owner: str, tensor: torch.Tensor) -> None:
        self._tracer.owners[self._tracer.storage(tensor, self._tracer.sites.setup)] = owner


def _in_apply_order(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Each parameter and buffer once, children first, as `Module.to` visits them."""
    seen: set[int] = set()

    def visit(module: nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
        for child in module.children():
            yield from visit(child)
        for owner, tensors in (("parameters", module._parameters), ("buffers", module._buffers)):
            for tensor in tensors.values():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield owner, tensor

    return visit(module)


def _watch(tracer: Tracer, model: nn.Module | None, optimizers: list[Optimizer]) -> Callable[[], None]:
    """Hooks that tell module, phase and owner; the function returned is called after each step."""
    names = {id(module): name for name, module in model.named_modules()} if model is not None else {}
    stack = tracer.sites.modules

    def enter(module: nn.Module, inputs: Any) -> None:
        stack.append(names.get(id(module), type(module).__name__))

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        if stack:
            stack.pop()

    def own() -> None:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        _own(tracer, "gradients", parameter.grad)
                    state = optimizer.state.get(parameter)
                    if isinstance(state, dict):
                        for value in state.values():
                            _own(tracer, "optimizer states", value)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        own()
        tracer.sites.optimizer_depth += 1

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        tracer.sites.optimizer_depth -= 1
        own()

    module_hooks.register_module_forward_pre_hook(enter)
    module_hooks.register_module_forward_hook(leave, always_call=True)
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    return own


def _own(tracer: Tracer, owner: str, value: Any) -> None:
    if isinstance(value, FakeTensor) and value.fake_device.type == "cuda":
        block = tracer.block_of(value)
        if block is not None and not tracer.owners[block]:
            tracer.owners[block] = owner
    elif isinstance(value, (list, tuple)):
        for item in value:
            _own(tracer, owner, item)
