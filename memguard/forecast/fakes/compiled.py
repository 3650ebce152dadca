"""torch.compile on fake tensors: PyTorch's own compiler up to the code it writes, which then runs without its kernels.

Dynamo finds the graphs, AOTAutograd divides them into forward and backward, Inductor fuses and plans buffers. What
Inductor writes is Python that allocates, calls kernels and frees. It runs here unchanged on fake tensors: there a fused
kernel does nothing, no kernel is compiled, and Triton is not needed. The process stays changed.
Checked with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import _disable_current_modes

from memguard.forecast.fakes.compiled_code import Code
from memguard.forecast.fakes.compiler_values import fold_constants_on_hosts, pass_random_states, trace_first_states
from memguard.forecast.fakes.without_dynamo import let_dynamo_in
from memguard.forecast.kernels.scratch_convolution import convolution_layout

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_BOUND = "the eager step is counted, an upper bound: compiled code fuses and recomputes"
_CPU = torch.device("cpu")
_SAID_BY_PYTORCH = (
    r"Using `torch.compile\(module\)` when there are global hooks",
    "dynamo_pgo force disabled",
    "TensorFloat32 tensor cores for float32 matrix multiplication",
)
_GLOBAL_HOOKS = (
    (module_hooks, ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_forward_hooks_always_called")),
    (optimizers, ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")),
)


def compile_on_fakes(tracer: Tracer) -> Callable[..., Any]:
    """What stands for `torch.compile` while a step is traced."""
    compiler = _Compiler(tracer)

    def compile(model: Any = None, *, backend: Any = "inductor", **options: Any) -> Any:
        if model is None:
            return lambda given: compile(given, backend=backend, **options)
        if options.get("disable") or backend == "eager":
            return model
        if tracer.setting.eager:
            tracer.note(f"torch.compile: {_BOUND}")
            return model
        if backend != "inductor":
            tracer.note(f"torch.compile with another backend than inductor: {_BOUND}")
            return model
        return compiler.compiled(model, options)

    return compile


def follow_compiled(tracer: Tracer, model: nn.Module | None) -> None:
    """The same for what was compiled before the trace began."""
    if not was_compiled():
        return
    if tracer.setting.eager:
        torch._dynamo.config.disable = True
        tracer.note(f"torch.compile: {_BOUND}")
        return
    compiler = _Compiler(tracer)
    if compiler.load():
        tracer.names_modules = False
        for module in model.modules() if model is not None else ():
            if isinstance(module, torch._dynamo.OptimizedModule):
                compiler.wrap(module)
    else:
        torch._dynamo.config.disable = True


def was_compiled() -> bool:
    """Whether this process has called the real `torch.compile`."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    return any(map(callable, getattr(frames, "cached_backends", {}).values()))  # of what is not compiled it is None


def has_compiled() -> bool:
    """Whether the compiler was at work in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    return bool(utils is not None and utils.counters["frames"])


def warm_up_compiler() -> None:
    """Load what a compiled step needs; for a process that will be forked for more of them."""
    with _aside():
        let_dynamo_in()
        _configure()
        _load_patterns()


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """What the compiler does is not traced, and what it warns of is its own."""
    with _disable_current_modes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class _Compiler:
    """Loads the compiler when the first call asks for it, and prepares it for fakes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._loaded: bool | None = None

    def load(self) -> bool:
        """Whether there is such a compiler."""
        if self._loaded is None:
            try:
                with _aside():
                    _prepare(self._tracer)
                self._loaded = True
                for text in _SAID_BY_PYTORCH:
                    warnings.filterwarnings("ignore", message=text)
            except Exception as error:  # another version of PyTorch, of whose private parts one is missing
                self._loaded = False
                self._tracer.note(f"torch.compile: {_first_line(error)}; {_BOUND}")
        return self._loaded

    def compiled(self, model: Any, options: dict[str, Any]) -> Any:
        """The module or function as the compiler runs it, or itself where there is no such compiler."""
        if not self.load():
            return model
        with _aside():
            found = _compile_of_torch(model, **options)
        if isinstance(found, nn.Module):
            self.wrap(found)
            return found
        if isinstance(getattr(model, "__self__", None), optimizers.Optimizer):
            return functools.wraps(found)(lambda *args, **kwargs: self._update(found, args, kwargs))
        return functools.wraps(found)(lambda *args, **kwargs: self._run(found, args, kwargs))

    def wrap(self, module: nn.Module) -> None:
        """Let a compiled module have its inputs where the step is, and see no hooks of ours."""
        call = module.forward
        module.forward = functools.wraps(call)(lambda *args, **kwargs: self._run(call, args, kwargs))

    def _update(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An optimizer's step, in which no hook tells that it is one."""
        sites = self._tracer.sites
        sites.optimizer_depth += 1
        try:
            return self._run(call, args, kwargs)
        finally:
            sites.optimizer_depth -= 1

    def _run(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch.compiler.is_compiling():
            return call(*args, **kwargs)
        tracer = self._tracer
        if not tracer.everything_on_gpu:
            with _without_global_hooks():
                return call(*args, **kwargs)
        args = tuple(tracer.moved(value) for value in args)
        kwargs = {name: tracer.moved(value) for name, value in kwargs.items()}
        with _without_global_hooks(), _without_function_modes(), tracer.cuda:
            return call(*args, **kwargs)


@contextlib.contextmanager
def _without_global_hooks() -> Iterator[None]:
    """The compiler would trace memguard's own hooks, and guard on what they hold."""
    kept = [
        (place, name, getattr(place, name)) for place, names in _GLOBAL_HOOKS for name in names if hasattr(place, name)
    ]
    for place, name, hooks in kept:
        setattr(place, name, type(hooks)())
    try:
        yield
    finally:
        for place, name, hooks in kept:
            setattr(place, name, hooks)


@contextlib.contextmanager
def _without_function_modes() -> Iterator[None]:
    """The compiler would trace those of memguard."""
    kept = []
    while torch._C._len_torch_function_stack():
        kept.append(torch._C._pop_torch_function_stack())
    try:
        yield
    finally:
        for mode in reversed(kept):
            torch._C._push_on_torch_function_stack(mode)


def _prepare(tracer: Tracer) -> None:
    """Load the compiler and let it believe in the fake GPU."""
    let_dynamo_in()
    _configure()
    _load_patterns()
    _let_device_be_fake()
    _let_engine_see_hosts()
    _compile_without_modes(tracer)
    fold_constants_on_hosts()
    _lay_convolutions_out()
    pass_random_states(tracer)
    trace_first_states(tracer)
    Code(tracer).install()
    from torch._inductor import compile_fx

    inductor: Any = compile_fx
    whole = inductor.compile_fx

    def compile_or_not(graph: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        options["config_patches"] = _without_benchmarks(tracer, options.get("config_patches") or {})
        try:
            return whole(graph, inputs, *args, **options)
        except Exception as error:
            cause = error.__cause__ or error
            tracer.note(f"torch.compile: a graph could not be compiled here ({_first_line(cause)}); of it {_BOUND}")
            return graph.forward

    inductor.compile_fx = compile_or_not


def _without_benchmarks(tracer: Tracer, options: dict[str, Any]) -> dict[str, Any]:
    """Inductor's options, without those for which it would measure kernels or record CUDA graphs."""
    measuring = [name for name, value in options.items() if "autotune" in name and value]
    if measuring:
        tracer.note("torch.compile: Inductor would measure kernels; those that it takes by default are counted")
    if options.get("triton.cudagraphs"):
        tracer.note(
            "torch.compile: CUDA graphs keep their memory in pools of their own, which are counted like other memory: "
            "what is reserved can be above the figure"
        )
    return {name: value for name, value in options.items() if name not in (*measuring, "triton.cudagraphs")}


def _configure() -> None:
    import torch._functorch.config as aot_config
    import torch._inductor.config as config
    from torch._inductor import compile_fx  # noqa: F401 - what takes longest to load

    config.compile_threads = 1
    config.force_disable_caches = True
    aot_config.enable_autograd_cache = False
    aot_config.force_non_lazy_backward_lowering = True


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:120]}"


_compile_of_torch = torch.compile


def _load_patterns() -> None:
    """Inductor's patterns are traced once, on tensors of the kind of device that is there: here on the host's."""
    from torch._inductor.fx_passes import joint_graph, post_grad, pre_grad

    there = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        for passes in (joint_graph, post_grad, pre_grad):
            load = getattr(passes, "lazy_init", None)
            if load is not None:
                load()
                setattr(passes, "lazy_init", lambda *_, **__: None)  # noqa: B010
    finally:
        torch.cuda.is_available = there


def _let_device_be_fake() -> None:
    """What the compiler asks of a GPU, it took from torch.cuda when it was loaded: it takes it again."""
    import torch._inductor.scheduler as scheduler
    import torch.utils._triton as triton
    from torch._dynamo.device_interface import CudaInterface

    for name, value in list(vars(CudaInterface).items()):
        if isinstance(value, staticmethod) and name != "is_available" and hasattr(torch.cuda, name):
            setattr(CudaInterface, name, staticmethod(getattr(torch.cuda, name)))
    setattr(torch._C, "_accelerator_getDefaultGenerator", torch.cuda.default_generators.__getitem__)  # noqa: B010
    setattr(scheduler, "has_triton", lambda *_: True)  # noqa: B010 - it asks whether kernels can be compiled
    setattr(triton, "triton_hash_with_backend", lambda: "")  # noqa: B010 - of the compiler that is not asked


def _lay_convolutions_out() -> None:
    """The layout of a convolution's output, for which the compiler asks PyTorch: without cuDNN it does not know."""

    def layout(tensor: torch.Tensor, weight: torch.Tensor, _: Any) -> torch.memory_format:
        return convolution_layout(tensor, weight)

    setattr(torch._C, "_conv_determine_backend_memory_format", layout)  # noqa: B010 - mypy takes it for a method


def _let_engine_see_hosts() -> None:
    """Autograd's engine also asks the tensors of a compiled graph for their device, and must get "cpu"."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    from memguard.forecast.fakes.device_guard import engine_code

    make = torch.Tensor._make_wrapper_subclass
    engine, device = engine_code(), torch.ops.prim.device.default

    def make_asking(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is FunctionalTensor and len(args) > 10:
            args = (*args[:10], True, *args[11:])  # dispatch_device
        return make(cls, *args, **kwargs)

    setattr(torch.Tensor, "_make_wrapper_subclass", staticmethod(make_asking))  # noqa: B010

    def answering(run: Callable[..., Any]) -> Callable[..., Any]:
        def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is device:
                if sys._getframe(1).f_code is engine:
                    return _CPU
                if isinstance(args[0], FunctionalTensor):
                    return torch._from_functional_tensor(args[0].elem).device
            return run(self, func, types, args, kwargs)

        return dispatch

    for kind in (FunctionalTensorMode, FunctionalTensor, FakeTensorMode, ProxyTorchDispatchMode):
        setattr(kind, "__torch_dispatch__", answering(kind.__torch_dispatch__))  # noqa: B010


def _compile_without_modes(tracer: Tracer) -> None:
    """While the compiler works nothing is traced: what it allocates is its own. It need not follow streams."""
    from torch._dynamo import convert_frame

    catcher: Any = convert_frame.CatchErrorsWrapper
    convert = catcher.__call__

    @functools.wraps(convert)
    def convert_aside(self: Any, *args: Any, **kwargs: Any) -> Any:
        accelerator: Any = getattr(torch, "accelerator", None)
        there = getattr(accelerator, "is_available", None)
        if there is not None:
            accelerator.is_available = lambda: False
        try:
            with _aside():
                return _converted(tracer, convert, self, args, kwargs)
        finally:
            if there is not None:
                accelerator.is_available = there

    catcher.__call__ = convert_aside


def _converted(tracer: Tracer, convert: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
    """What the compiler makes of a function; one that it cannot follow runs as it is."""
    import torch._dynamo.config as config

    config.suppress_errors = False
    try:
        return convert(self, *args, **kwargs)
    except Exception as error:
        tracer.note(f"torch.compile: a function could not be compiled here ({_first_line(error)}); of it {_BOUND}")
        config.suppress_errors = True
        return convert(self, *args, **kwargs)
