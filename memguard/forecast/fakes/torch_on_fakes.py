"""The places where PyTorch would refuse to work on fake tensors, changed for good in the process that traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizer_module
from torch.utils import _foreach_utils

from memguard.forecast.fakes.compiled import compile_on_fakes
from memguard.forecast.fakes.tensors import inside
from memguard.forecast.kernels.recurrent import count_recurrent_layers, install_padding
from memguard.forecast.tracer import Tracer


def prepare_torch(tracer: Tracer) -> None:
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
    _ask_no_driver()
    _record_streams(tracer)
    _tell_addresses()
    torch.compile = compile_on_fakes(tracer)
    torch.ctc_loss = _ctc_loss(torch.ctc_loss)
    count_recurrent_layers(tracer)
    install_padding()


def _ask_no_driver() -> None:
    """Where there is a GPU, fake tensors would wake it, or fail: a fork of a process that uses CUDA cannot.

    The backend of a convolution decides only in which layout fake mode answers, which memguard's own kernels settle.
    A transformer's layer in one operator, as for inference, has no fake kernel: it is counted operator by operator.
    """
    torch.backends.mha.set_fastpath_enabled(False)
    setattr(fake_tensor, "init_gpu_context", lambda device: None)  # noqa: B010 - not every torch has it
    backend: Any = getattr(torch._C, "_ConvBackend")  # noqa: B009 - the stubs give it another name
    setattr(torch._C, "_select_conv_backend", lambda *_, **__: backend.Slow2d)  # noqa: B010


def _record_streams(tracer: Tracer) -> None:
    """PyTorch takes streams of its own types only."""

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        for part in inside(self):
            tracer.record_stream(part, stream.number)

    setattr(torch.Tensor, "record_stream", record_stream)  # noqa: B010 - mypy takes it for a method


def _tell_addresses() -> None:
    """Code that asks which tensors lie in one memory compares addresses: of a fake, one that is its storage's alone."""
    asked = torch.UntypedStorage.data_ptr

    def of_storage(storage: torch.UntypedStorage) -> int:
        if storage.device.type == "meta":
            return storage._cdata if storage.nbytes() else 0
        return asked(storage)

    def of_tensor(self: FakeTensor) -> int:
        start = of_storage(self.untyped_storage())
        return start + int(self.storage_offset()) * self.element_size() if start else 0

    setattr(torch.UntypedStorage, "data_ptr", of_storage)  # noqa: B010 - mypy takes it for a method
    setattr(FakeTensor, "data_ptr", of_tensor)  # noqa: B010


def _ctc_loss(ctc_loss: Callable[..., Any]) -> Callable[..., Any]:
    """Lengths may be on the host; for tensors of any kind PyTorch would take them to the GPU too late."""

    @functools.wraps(ctc_loss)
    def with_lengths_on_gpu(log_probs: Any, targets: Any, *lengths: Any, **options: Any) -> Any:
        lengths = tuple(v.to(log_probs.device) if isinstance(v, torch.Tensor) else v for v in lengths)
        return ctc_loss(log_probs, targets, *lengths, **options)

    return with_lengths_on_gpu


def undecomposed() -> torch.library.Library:
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
