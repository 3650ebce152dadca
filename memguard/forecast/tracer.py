"""The dispatch mode that watches every operator of a step on fake CUDA tensors and writes down the memory events."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, final

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from memguard.errors import MemGuardError
from memguard.forecast.fakes.device_guard import engine_code
from memguard.forecast.fakes.outcomes import Outcomes
from memguard.forecast.fakes.tensors import CPU, Fakes, inside
from memguard.forecast.kernels.overrides import KERNELS, Kernel
from memguard.forecast.kernels.scratch import scratch_of
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Mesh, Trace

_ENGINE = engine_code()
_PRIM_DEVICE = torch.ops.prim.device.default
_MODES, _OPERATORS = ("__torch_dispatch__", "__torch_function__"), torch._ops.__file__
_EMPTY = torch.ops.aten.empty.memory_format
_ADD = torch.ops.aten.add.Tensor
_TO_COPY = torch.ops.aten._to_copy.default
_FACTORIES = frozenset(
    getattr(torch.ops.aten, name).default for name in ("rand", "randn", "zeros", "ones", "full", "randint")
) | {torch.ops.aten.randint.low, torch.ops.aten.empty.memory_format}
_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
_LONGEST = 4096
_MOST_READS = 20_000
_SELECT = torch.ops.aten.select.int


@final
class Tracer(Fakes, TorchDispatchMode):
    """Everything that a step allocates on the fake GPU, in order.

    Storages are followed by weak reference, so that a free is recorded when PyTorch would free. Enter it inside its
    `fake_mode`.

    Args:
        fake_mode: The mode that runs the operators on fake tensors.
        setting: The GPU to imitate.
    """

    def __init__(self, fake_mode: FakeTensorMode, setting: Setting) -> None:
        TorchDispatchMode.__init__(self)
        Fakes.__init__(self, fake_mode, torch.device("cuda", setting.local_rank))
        self.setting = setting
        self.compute_capability = setting.compute_capability
        self.everything_on_gpu = False
        """The user's code names no device: what it creates on the CPU is taken to be on the GPU."""
        self.operators = 0
        self.recurrent_bytes = 0
        """What recurrent layers kept, over all steps."""
        self.resized = False
        """Whether an input was found that has the batch size in its shape."""
        self.autocasts: set[bool] = set()
        """Whether forwards of whole models ran under bf16 autocast: yes, no, or both."""
        self.notes: dict[str, None] = {}
        self.groups: set[tuple[int, ...]] = set()
        """The ranks of each process group that was used."""
        self.meshes: list[Mesh] = []
        self.laid_out = False
        """A mesh was given the sizes of the setting's layout."""
        """Of all ranks, as the code makes them."""
        self.host_is_real = False
        """Whether numbers on the host are to be real ones."""
        self.names_modules = True
        """Whether hooks tell which module runs: a compiler would trace them too."""
        self.muted = False
        """Whether PyTorch only asks for shapes: nothing is allocated."""
        self._kernels = KERNELS
        self._wrappers: frozenset[type] = frozenset()
        self._values_read: dict[int, int] = {}
        self._last_call = (0, 0)
        changed = setting.batch is not None and setting.traced_batch not in (None, setting.batch)
        self._other_batch = setting.traced_batch if changed else None
        self._last_func: Any = None
        self._outcomes = Outcomes(fake_mode)

    def distribute(self, kernels: dict[Any, Kernel], wrappers: Iterable[type]) -> None:
        """Several processes: these operators too, and types of tensors of which each rank holds a part."""
        self._kernels = {**KERNELS, **kernels}
        self._wrappers = frozenset(wrappers)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would wrap __torch_dispatch__, and hide the frame of its caller

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs under it as it does without."""
        return True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Like the fake mode, no mode of the user's."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        frame = sys._getframe(1)
        if func is _PRIM_DEVICE:
            return self._device_of(args[0], frame)
        if self.muted:
            return func(*args, **(kwargs or {}))
        if self.host_is_real and func is _EMPTY and (kwargs or {}).get("device", CPU).type == "cpu":
            with _disable_current_modes():
                return func(*args, **(kwargs or {}))
        if self._wrappers and not self._wrappers.isdisjoint(types):
            return NotImplemented  # it comes again for the tensors inside
        kwargs = kwargs or {}
        self.operators += 1
        if func is _SELECT and self.is_known(args[0]):
            with _disable_current_modes():
                return func(*args)
        if frame.f_code is _ENGINE:
            func = IN_PLACE.get(func, func)
            if func is _TO_COPY and _changes_nothing(args[0], kwargs):
                return args[0]
        args, kwargs = self._on_gpu(func, args, kwargs, frame)
        site = self.sites.index(frame)
        if self._other_batch is not None and func in _FACTORIES:
            args = self._with_other_batch(args, frame)
        kernel = self._kernels.get(func)
        literal = args[0] if func in _LIFTS and _is_list_of_numbers(args[0]) else None
        if func in _LIFTS and isinstance(args[0], torch.Tensor):
            out = self._outcomes.literal(func, args[0])
        elif kernel is None:
            out = self._outcomes.of(func, args, kwargs)
        else:
            out = kernel(self, site, func, args, kwargs)
        if literal is not None:
            self.know_literal(out, literal)
        scratch = scratch_of(func)
        if scratch is None:
            self.outputs(out, site)
        else:
            scratch(self, site, args, kwargs, out)
        self._accumulated = None
        if func in REUSING and frame.f_code is _ENGINE and reuses_its_operand():
            self._reused(out, args[0])
        elif func is _ADD:
            if frame.f_code is _ENGINE:
                self._accumulation(args, out)
            elif self._last_call == _call(frame) and self._last_func is not _ADD:
                self._added_in_place(args, out)
        self._last_call = _call(frame)
        self._last_func = func
        return out

    def _device_of(self, tensor: Any, frame: FrameType) -> torch.device:
        if frame.f_code is _ENGINE:
            return CPU
        if not isinstance(tensor, FakeTensor):
            return next((self._device_of(part, frame) for part in inside(tensor) if part is not tensor), CPU)
        if tensor.fake_mode.in_kernel_invocation:
            return torch.device("meta")
        return tensor.fake_device

    def _on_gpu(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as fakes; if the user names no device, as fakes on the GPU."""
        if func in _LIFTS and not (self.everything_on_gpu and not self.sites.in_host_code(frame)):
            return args, kwargs  # a literal, whose value the fake mode keeps
        for value in args:
            kind = type(value)
            if kind is FakeTensor:
                if value.fake_device is not self.cuda and self.everything_on_gpu and value.fake_device.type == "cpu":
                    break
                continue
            if (isinstance(value, torch.Tensor)) or kind is list or kind is tuple:
                break
        else:
            if "device" not in kwargs and not self.everything_on_gpu:
                return args, kwargs
        if self.everything_on_gpu and not self.sites.in_host_code(frame):
            args = tuple(self.moved(value) for value in args)
            if "device" in kwargs and (kwargs["device"] is None or kwargs["device"].type == "cpu"):
                kwargs = {**kwargs, "device": self.cuda}
        else:
            args = tuple(self.faked(value) for value in args)
        device = kwargs.get("device")
        if device is not None and frame.f_code is _ENGINE and func is not _TO_COPY:
            device = self.cuda  # the engine was told "cpu" of every tensor, and now makes one like them
        if device is not None and device.type == "cuda":
            kwargs = {**kwargs, "device": self.cuda}
            for value in args:
                if isinstance(value, FakeTensor):
                    value.constant = None
        return args, kwargs

    def _with_other_batch(self, args: tuple[Any, ...], frame: FrameType) -> tuple[Any, ...]:
        """A tensor that the step itself creates, with the batch size asked for."""
        if not self.sites.stepping or self.sites.modules or not self.sites.called_by_user(frame):
            return args
        for position, value in enumerate(args):
            if isinstance(value, (list, torch.Size)) and value and value[0] == self.setting.batch:
                self.resized = True
                return (*args[:position], [self._other_batch, *value[1:]], *args[position + 1 :])
        return args

    def note(self, text: str) -> None:
        """Something that the trace had to assume, said once."""
        self.notes.setdefault(text)

    def note_value(self, site: int, dtype: torch.dtype) -> None:
        """A value was read from the GPU; the step went on with a stand-in."""
        place = self.sites.table[site]
        self._values_read[site] = count = self._values_read.get(site, 0) + 1
        where = f"{place.file}:{place.line}" if place.file else "PyTorch itself"
        if count > _MOST_READS:
            raise MemGuardError(f"{where} read more than {_MOST_READS} values: a loop there waits for a value")
        if place.file:
            stand_in = "False" if dtype == torch.bool else "0"
            self.note(f"{where} reads a value from the GPU (.item() or a test): {stand_in} was assumed")

    def trace(self, *, steps: int, batch: int | None) -> Trace:
        """What was recorded, as plain data."""
        return Trace(
            events=list(self.events),
            sites=self.sites.table,
            owners=self.owners,
            steps=steps,
            compute_capability=self.compute_capability,
            torch_version=torch.__version__,
            operators=self.operators,
            notes=tuple(self.notes),
            recurrent_bytes=self.recurrent_bytes // max(steps, 1),
            batch=batch,
            in_bf16=self.autocasts == {True},
            mesh=max(self.meshes, key=lambda mesh: len(mesh.shape), default=None),
            groups=tuple(sorted(len(ranks) for ranks in self.groups if len(ranks) > 1)),
        )


def _call(frame: FrameType) -> tuple[int, int]:
    """The instruction that asked for an operator; frames of dispatch modes come and go at one address."""
    caller: FrameType | None = frame
    while caller is not None and (caller.f_code.co_name in _MODES or caller.f_code.co_filename == _OPERATORS):
        frame, caller = caller, caller.f_back
    frame = caller or frame
    return id(frame), frame.f_lasti


def _is_list_of_numbers(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and not tensor.is_floating_point()
        and tensor.dim() == 1
        and len(tensor) <= _LONGEST
    )


def _changes_nothing(tensor: Any, kwargs: dict[str, Any]) -> bool:
    """Whether the engine, which was told "cpu" of a tensor on the GPU, asks for a copy that it does not need."""
    if type(tensor) is not FakeTensor or tensor.fake_device.type != "cuda":
        return False
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    return (
        (device is None or device.type == "cuda" or tensor.dim() == 0)
        and (dtype is None or dtype == tensor.dtype)
        and kwargs.get("memory_format") in (None, torch.preserve_format)
    )


# What a backward formula does in place on ordinary tensors, though it must not where tensors may be of any kind.
# The formulas in FunctionsManual.cpp ask ``isTensorSubclassLike`` and then, under a dispatch mode, take an operator
# that makes a new tensor of what they themselves have just made.

_aten: Any = torch.ops.aten

IN_PLACE: dict[Any, Any] = {
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
    _aten.index_fill.int_Scalar: _aten.index_fill_.int_Scalar,
    _aten.index_fill.int_Tensor: _aten.index_fill_.int_Tensor,
}
"""Operators called by the autograd engine itself -> what it would call."""

REUSING = frozenset((_aten.sub.Tensor, _aten.mul.Tensor))
"""Operators that some formulas apply in place to what they made, and then drop."""
_NODES = frozenset(("BinaryCrossEntropyWithLogitsBackward0",))


def reuses_its_operand() -> bool:
    """Whether the engine is at a formula that would have worked in place on ordinary tensors."""
    node = torch._C._current_autograd_node()
    return node is not None and node.name() in _NODES
