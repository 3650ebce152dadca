"""torch.distributed as one rank of many sees it, on a process group that sends nothing. Changes the process for good.

The group is PyTorch's own, made for such runs (backend "fake"); what a collective allocates is in
`memguard.forecast.kernels.collectives`. Checked with torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from memguard.errors import MemGuardError
from memguard.forecast.fakes.sharding_speed import hasten_sharding, replace
from memguard.forecast.kernels.collectives import collective_kernels
from memguard.forecast.trace import Mesh

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


_NCCL = (2, 28, 9)
"""A version that has all types of numbers."""
_NEEDED = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed._functional_collectives",
    "torch.testing._internal.distributed.fake_pg",
)
_DISPATCH_DEVICE = 10
"""Place of ``dispatch_device`` among the arguments of `torch.Tensor._make_wrapper_subclass`."""
_OF_GROUPS = ("use_local_synchronization", "group_desc", "sort_ranks")


class Place(NamedTuple):
    """Which process of a training this is."""

    rank: int
    processes: int
    """On each node."""
    nodes: int

    @property
    def world(self) -> int:
        """Processes of the training."""
        return self.processes * self.nodes

    @property
    def local_rank(self) -> int:
        """Its number on its node, which is that of its GPU."""
        return self.rank % self.processes


def load_distributed() -> None:
    """Load what every rank needs; for a process that will be forked for each."""
    if torch.distributed.is_available():
        for name in _NEEDED:
            with contextlib.suppress(ImportError):  # not every PyTorch has it; `join` says what is missing
                importlib.import_module(name)


def name_process(place: Place) -> None:
    """What torchrun would put into the environment."""
    os.environ.update(
        RANK=str(place.rank),
        WORLD_SIZE=str(place.world),
        LOCAL_RANK=str(place.local_rank),
        LOCAL_WORLD_SIZE=str(place.processes),
        GROUP_RANK=str(place.rank // place.processes),
        GROUP_WORLD_SIZE=str(place.nodes),
        MASTER_ADDR="localhost",
        MASTER_PORT="29500",
    )


def join(tracer: Tracer, place: Place) -> None:
    """Let the training's process groups be ones that send nothing.

    Raises:
        MemGuardError: This PyTorch has no such process group.
    """
    if not torch.distributed.is_available():
        raise MemGuardError("this PyTorch was built without torch.distributed: several processes cannot be forecast")
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        raise MemGuardError(
            f"torch {torch.__version__} has no process group that sends nothing: forecasts of several processes need a "
            "newer one"
        ) from None

    def init_process_group(start: Callable[..., Any]) -> Callable[..., Any]:
        def join_alone(*_: Any, **given: Any) -> None:
            if dist.is_initialized():
                return  # the code asked for its rank before
            world = given.get("world_size", -1)
            if world not in (-1, None, place.world):
                raise MemGuardError(
                    f"the code asks for {world} processes, and the forecast is for {place.world}: "
                    f"say --nproc {world} (nproc={world})"
                )
            start(backend="fake", store=FakeStore(), rank=place.rank, world_size=place.world)

        return join_alone

    def default_group(find: Callable[..., Any]) -> Callable[..., Any]:
        def found() -> Any:
            if not dist.is_initialized():  # the script's own main would have done so before it calls this function
                dist.init_process_group()
            return find()

        return found

    def new_group(start: Callable[..., Any]) -> Callable[..., Any]:
        def group(ranks: Any = None, timeout: Any = None, *_: Any, **given: Any) -> Any:
            return start(ranks, timeout, **{key: given[key] for key in _OF_GROUPS if key in given})

        return group

    distributed: Any = distributed_c10d
    replace(distributed.init_process_group, init_process_group)
    replace(distributed._get_default_group, default_group)
    replace(distributed.new_group, new_group)
    replace(distributed.is_nccl_available, lambda _: lambda: True)
    replace(distributed.all_gather_object, lambda _: _all_gather_object)
    replace(distributed.gather_object, lambda _: _gather_object)
    replace(distributed.scatter_object_list, lambda _: _scatter_object_list)
    for function in (distributed.broadcast_object_list, distributed.monitored_barrier):
        replace(function, lambda _: _nothing)
    setattr(torch._C, "_get_accelerator", lambda *_: torch.device("cuda"))  # noqa: B010 - where a mesh is by default
    asked: Any = dist.get_backend
    setattr(dist, "get_backend", lambda *group: asked(*group) if _asked_by_torch() else "nccl")  # noqa: B010
    from torch.distributed._functional_collectives import AsyncCollectiveTensor
    from torch.distributed.tensor import DTensor

    tracer.distribute(collective_kernels(), (DTensor, AsyncCollectiveTensor))
    setattr(torch.cuda.nccl, "version", lambda: _NCCL)  # noqa: B010 - mypy takes it for a method
    _let_buckets_be_rebuilt(tracer)
    _let_stages_vote_alone()
    _keep_meshes_real(tracer, place.world)
    _let_wrappers_tell_their_device()
    _watch_storages(tracer)
    _ask_shapes_aside(tracer)
    _move_by_swapping()
    hasten_sharding()


def _asked_by_torch() -> bool:
    return sys._getframe(2).f_code.co_filename.startswith(os.path.dirname(torch.__file__))


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = [obj] * len(object_list)


def _gather_object(obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if object_gather_list is not None:
        _all_gather_object(object_gather_list, obj)


def _scatter_object_list(output: list[Any], given: list[Any] | None = None, *_: Any, **__: Any) -> None:
    if given:
        output[0] = given[0]


def _let_buckets_be_rebuilt(tracer: Tracer) -> None:
    """DistributedDataParallel compares shapes by their values, and tells the other ranks in which order gradients came.

    The first is taken to be alright; for the second its reducer reads numbers on the host, which must be real.
    """
    from torch._C._distributed_c10d import Logger, Reducer
    from torch.distributed import utils

    replace(utils._verify_param_shape_across_processes, lambda _: lambda *_, **__: True)
    setattr(Logger, "set_runtime_stats_and_log", _nothing)  # noqa: B010 - it asks when things happened on the GPU
    rebuild: Any = Reducer._rebuild_buckets

    def rebuild_with_numbers(reducer: Any) -> Any:
        tracer.host_is_real = True
        try:
            return rebuild(reducer)
        finally:
            tracer.host_is_real = False

    setattr(Reducer, "_rebuild_buckets", rebuild_with_numbers)  # noqa: B010 - mypy takes it for a method


def _let_stages_vote_alone() -> None:
    """The stages of a pipeline ask each other for shapes, unless all of them know theirs: here nobody can answer."""
    from torch.distributed.pipelining import stage

    replace(torch.distributed.recv_object_list, lambda _: _no_object)
    base: Any = stage._PipelineStageBase
    for kind in vars(stage).values():
        for name in ("_warmup_forward_vote", "_warmup_backward_result"):
            if isinstance(kind, type) and name in vars(kind):
                setattr(kind, name, _vote)
    release = getattr(base, "_output_slot_is_releasable", None)
    if release is not None:
        plain = torch.empty(0)  # an output that was sent may go, but only if it is of PyTorch's own type
        base._output_slot_is_releasable = lambda self, output: release(
            self, plain if isinstance(output, FakeTensor) else output
        )


def _vote(stage: Any, *_: Any, **__: Any) -> torch.Tensor:
    meta = stage._user_meta
    if meta.inputs is None or meta.outputs is None:
        _no_object()
    with _disable_current_modes():
        return torch.ones(1, dtype=torch.int32)


def _no_object(*_: Any, **__: Any) -> None:
    raise MemGuardError(
        "a stage asks another one for the shapes that it sends, which a forecast of one rank cannot know: give "
        "PipelineStage input_args and output_args (tensors on the meta device; those of activations require gradients)"
    )


_ASKED_OFTEN = ("__hash__", "__eq__", "__enter__", "__exit__", "size", "get_coordinate", "get_local_rank", "get_group")


def _keep_meshes_real(tracer: Tracer, world: int) -> None:
    """A mesh is a tensor of ranks, whose values count: it is made and taken apart as if nothing were traced."""
    from torch.distributed import device_mesh
    from torch.distributed.fsdp import _fully_shard

    mesh = device_mesh.DeviceMesh
    for name, value in list(vars(mesh).items()):
        if isinstance(value, FunctionType) and name not in _ASKED_OFTEN:
            setattr(mesh, name, _without_modes(value))
        elif isinstance(value, staticmethod):
            setattr(mesh, name, staticmethod(_without_modes(value.__func__)))
    make = mesh.__init__

    @functools.wraps(make)
    def make_and_tell(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        with _disable_current_modes():
            ranks = self.mesh
            if ranks.numel() == world:
                names = tuple(self.mesh_dim_names or (f"dimension {number}" for number in range(ranks.dim())))
                names = ("rank",) if not self.mesh_dim_names and ranks.dim() == 1 else names
                tracer.meshes.append(Mesh(names, tuple(ranks.shape), tuple(ranks.flatten().tolist())))

    setattr(mesh, "__init__", make_and_tell)  # noqa: B010 - mypy takes it for a method
    replace(device_mesh.init_device_mesh, lambda init: _with_layout(tracer, _without_modes(init)))
    for module in vars(_fully_shard).values():
        if hasattr(module, "_get_post_forward_mesh_info"):
            module._get_post_forward_mesh_info = _without_modes(module._get_post_forward_mesh_info)


def _with_layout(tracer: Tracer, init: Callable[..., Any]) -> Callable[..., Any]:
    """Meshes whose dimensions are those of the layout that was asked for have its sizes."""
    layout = dict(tracer.setting.layout)

    @functools.wraps(init)
    def make(device_type: str, mesh_shape: Any, *, mesh_dim_names: Any = None, **given: Any) -> Any:
        if layout and set(mesh_dim_names or ()) == set(layout):
            mesh_shape = tuple(layout[name] for name in mesh_dim_names)
            tracer.laid_out = True
        return init(device_type, mesh_shape, mesh_dim_names=mesh_dim_names, **given)

    return make


def _without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run


def _let_wrappers_tell_their_device() -> None:
    """A tensor that holds others asks for its device too, so that autograd's engine can be told "cpu" of it."""
    from torch.distributed.tensor import DTensor

    make: Any = torch.Tensor._make_wrapper_subclass

    def make_asking(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > _DISPATCH_DEVICE:  # the compiler gives all by their places
            return make(cls, *args[:_DISPATCH_DEVICE], True, *args[_DISPATCH_DEVICE + 1 :], **kwargs)
        return make(cls, *args, **{**kwargs, "dispatch_device": True})

    def new(cls: Any, local_tensor: torch.Tensor, spec: Any, *, requires_grad: bool) -> Any:
        meta = spec.tensor_meta
        made = make_asking(
            cls,
            meta.shape,
            strides=meta.stride,
            dtype=local_tensor.dtype,
            device=local_tensor.device,
            layout=local_tensor.layout,
            requires_grad=requires_grad,
        )
        made._spec, made._local_tensor = spec, local_tensor
        return made

    setattr(torch.Tensor, "_make_wrapper_subclass", staticmethod(make_asking))  # noqa: B010
    setattr(DTensor, "__new__", new)  # noqa: B010 - mypy takes it for a method


def _ask_shapes_aside(tracer: Tracer) -> None:
    """DTensor asks for the shapes of whole tensors by running an operator on fakes: nothing is allocated by that."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    for name in ("_propagate_tensor_meta_non_cached", "_propagate_tensor_meta"):
        asked = getattr(ShardingPropagator, name, None)
        if asked is not None:
            setattr(ShardingPropagator, name, _muted(tracer, asked))


def _muted(tracer: Tracer, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def ask(*args: Any, **kwargs: Any) -> Any:
        was, tracer.muted = tracer.muted, True
        try:
            return function(*args, **kwargs)
        finally:
            tracer.muted = was

    return ask


def _watch_storages(tracer: Tracer) -> None:
    """FSDP gives the memory of a gathered parameter back, and takes it again, by the size of its storage."""
    resize = torch.UntypedStorage.resize_

    def resize_and_tell(storage: torch.UntypedStorage, size: int) -> Any:
        done = resize(storage, size)
        tracer.resized_storage(storage, "gathered parameters", tracer.sites.index(sys._getframe(1)))
        return done

    setattr(torch.UntypedStorage, "resize_", resize_and_tell)  # noqa: B010 - mypy takes it for a method


def _move_by_swapping() -> None:
    """Fake tensors cannot be moved to another device by setting ``data``, as FSDP does in both its forms."""
    from torch.distributed.fsdp import _fully_shard, _init_utils

    def move(parameters: Any, buffers: Any, device: torch.device | None) -> None:
        for tensor in (*parameters, *buffers):
            if device is None or tensor.device == device or tensor.device.type == "meta":
                continue
            with torch.no_grad():
                moved = tensor.detach().to(device)
            if isinstance(tensor, nn.Parameter):
                moved = nn.Parameter(moved, requires_grad=tensor.requires_grad)
            torch.utils.swap_tensors(tensor, moved)

    for module in (*vars(_fully_shard).values(), _init_utils):
        if hasattr(module, "_move_states_to_device"):
            module._move_states_to_device = move
