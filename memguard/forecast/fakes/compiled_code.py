"""The code that Inductor writes, run on fake tensors: its allocations are traced, its kernels do nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

import torch

from memguard.forecast.kernels.scratch import scratch_of

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_aten: Any = torch.ops.aten
_PRODUCTS = {name: getattr(_aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm")}
_KERNELS = ("triton", "cpp", "cpp_pybinding", "multi_kernel", "halide", "cutedsl")


class _NoKernel:
    """A kernel that is not compiled, and does nothing."""

    def run(self, *_: Any, **__: Any) -> None:
        """Nothing is computed."""

    __call__ = run


@final
class Code:
    """How modules that Inductor writes are run."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def install(self) -> None:
        """Let Inductor load what it writes through this."""
        from torch._inductor import async_compile, codecache, compile_fx

        for name in _KERNELS:
            if hasattr(async_compile.AsyncCompile, name):
                setattr(async_compile.AsyncCompile, name, lambda *_, **__: _NoKernel())
        setattr(async_compile.AsyncCompile, "wait", lambda *_, **__: None)  # noqa: B010
        setattr(codecache.PyCodeCache, "load_by_key_path", self._load)  # noqa: B010 - mypy takes it for a method
        if hasattr(compile_fx, "align_inputs_from_check_idxs"):
            compile_fx.align_inputs_from_check_idxs = lambda model, *_, **__: model  # it asks for addresses

    def _load(self, key: str, path: str, linemap: Any = None, attrs: Any = None, **_: Any) -> ModuleType:
        module = ModuleType(f"memguard_compiled_{key}")
        module.__file__ = path
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), "<torch.compile>", "exec", dont_inherit=True)
        with _parts_of_a_gpu():
            exec(code, module.__dict__)
        vars(module).update(attrs or {})
        for name, value in self._replaced(module).items():
            if hasattr(module, name):
                setattr(module, name, value)
        return module

    def _replaced(self, module: ModuleType) -> dict[str, Any]:
        device = self._tracer.cuda

        def empty(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty_strided(size, stride, dtype=dtype, device=device)

        def view(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
            return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)

        return {
            "empty_strided_cuda": empty,
            "empty_strided_cpu": torch.empty_strided,
            "empty_strided_cpu_pinned": torch.empty_strided,
            "reinterpret_tensor": view,
            "copy_if_misaligned": _same,
            "get_raw_stream": lambda *_: 0,
            "assert_size_stride": _nothing,
            "assert_alignment": _nothing,
            "extern_kernels": _Libraries(self._tracer, getattr(module, "extern_kernels", None)),
        }


class _Libraries:
    """The operators that Inductor leaves to libraries, by name; products write into a buffer that is there."""

    def __init__(self, tracer: Tracer, others: Any) -> None:
        self._tracer = tracer
        self._others = others

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operator = _PRODUCTS.get(name)
        if operator is None:
            return getattr(self._others, name)  # type: ignore[no-any-return]
        scratch: Any = scratch_of(operator)

        def product(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
            if out is None:
                return operator(*args, **kwargs)  # type: ignore[no-any-return]
            scratch(self._tracer, self._tracer.sites.index(sys._getframe(1)), args, kwargs, out)
            return out

        return product


@contextlib.contextmanager
def _parts_of_a_gpu() -> Iterator[None]:
    """What the code imports, and a PyTorch without CUDA does not have."""
    added: list[str] = []
    try:
        for name in ("triton", "triton.language"):
            if name not in sys.modules:
                sys.modules[name] = ModuleType(name)
                added.append(name)
        if added:
            sys.modules["triton"].language = sys.modules["triton.language"]  # type: ignore[attr-defined]
        if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
            setattr(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0)  # noqa: B010
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)


def _same(value: Any, *_: Any) -> Any:
    return value


def _nothing(*_: Any, **__: Any) -> None:
    return None
