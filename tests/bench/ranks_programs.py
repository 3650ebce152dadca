"""Trainings of several processes for `forecast_ranks.py`: models by layouts, each built as its user would write it."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ranks_models import MODELS, Block

Made = tuple[Any, Any, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One training, as one of its ranks sees it."""

    model: str
    layout: str
    precision: str = "fp32"
    checkpointed: bool = False
    rank: int = 0
    optimizer: str = "adamw"
    batch: int = 4
    processes: int = 8
    nodes: int = 1

    def __str__(self) -> str:
        more = ", checkpointed" if self.checkpointed else ""
        return (
            f"{self.model} | {self.layout} | {self.precision}{more} | {self.optimizer}, batch {self.batch} "
            f"| {self.rank} of {self.processes * self.nodes}"
        )


def build(case: Case) -> Made:
    """Model, optimizer and step of a case; torch.distributed is there already where the truth is measured."""
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    kind, _, options = case.layout.partition(" ")
    return LAYOUTS[kind](case, options.split())


def _optimizer(case: Case, model: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if case.optimizer == "sgd":
        return torch.optim.SGD(parameters, 0.1, momentum=0.9)
    if case.optimizer == "fused":
        return torch.optim.AdamW(parameters, 1e-3, fused=True)
    mixed = len({type(p.data) for p in parameters}) > 1  # not every parameter is a distributed tensor
    return torch.optim.AdamW(parameters, 1e-3, foreach=False if mixed else None)


def _model(case: Case) -> Any:
    model = MODELS[case.model]()
    for block in model.blocks:
        if isinstance(block, Block):
            block.checkpointed = case.checkpointed
    return model


def _step(case: Case, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[int], Tensor]) -> Made:
    autocast = functools.partial(torch.autocast, "cuda", torch.bfloat16, enabled=case.precision == "autocast")

    def step() -> None:
        with autocast():
            value = loss(case.batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


class _Whole(nn.Module):
    """Model and loss in one forward, for wrappers that act there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: int) -> Tensor:
        return self.model.loss(batch)


def ddp(case: Case, options: list[str]) -> Made:
    """DistributedDataParallel."""
    from torch.nn.parallel import DistributedDataParallel

    inner = _Whole(_model(case)).cuda()
    if case.precision == "bf16":
        inner.bfloat16()
    given: dict[str, Any] = {
        "view": {"gradient_as_bucket_view": True},
        "static": {"static_graph": True},
        "unused": {"find_unused_parameters": True},
        "small": {"bucket_cap_mb": 5},
        "large": {"bucket_cap_mb": 500},
    }
    chosen = {key: value for option in options if option in given for key, value in given[option].items()}
    model = DistributedDataParallel(inner, device_ids=[torch.cuda.current_device()], **chosen)
    if "compressed" in options:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

        model.register_comm_hook(None, bf16_compress_hook)
    if "divided" in options:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
    else:
        optimizer = _optimizer(case, model)
    made = _step(case, model, optimizer, model)
    if "accumulated" not in options:
        return made

    def step() -> None:
        with model.no_sync():
            model(case.batch).backward()
        made[2]()

    return model, optimizer, step


def fsdp(case: Case, options: list[str]) -> Made:
    """`fully_shard`: each block, then the rest."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    given: dict[str, Any] = {}
    if case.precision == "mixed":
        reduced = None if "reduced" in options else torch.float32
        given["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    if "hybrid" in options:
        given["mesh"] = init_device_mesh("cuda", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
    if "kept" in options:
        given["reshard_after_forward"] = False
    if "node" in options:
        given["reshard_after_forward"] = 4
    if "offload" in options:
        given["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    model = _model(case)
    if "meta" in options:
        model = model.to("meta")
    elif "host" not in options:
        model = model.cuda()
    if case.precision == "bf16":
        model = model.bfloat16()
    blocks = list(model.blocks)
    if "pairs" in options:
        for first, second in zip(blocks[::2], blocks[1::2], strict=False):
            fully_shard([first, second], **given)
    elif "whole" not in options:
        for block in blocks:
            if "layers" in options:
                for layer in block.modules():
                    if isinstance(layer, nn.Linear):
                        fully_shard(layer, **given)
            fully_shard(block, **given)
    if "ignored" in options:
        given["ignored_params"] = set(model.embedding.parameters())
    whole = fully_shard(_Whole(model), **given)
    if "meta" in options:
        whole.to_empty(device="cuda")
    if "prefetch" in options:
        for block, following in itertools.pairwise(blocks):
            block.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([block])
    optimizer = _optimizer(case, whole)
    made = _step(case, whole, optimizer, whole)
    if not {"accumulated", "clipped"} & set(options):
        return made

    def step() -> None:
        if "accumulated" in options:
            whole.set_requires_gradient_sync(False)
            whole.set_reshard_after_backward("kept" not in options)
            whole(case.batch).backward()
            whole.set_requires_gradient_sync(True)
            whole.set_reshard_after_backward(True)
        whole(case.batch).backward()
        if "clipped" in options:
            torch.nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return whole, optimizer, step


def fsdp1(case: Case, options: list[str]) -> Made:
    """FullyShardedDataParallel, with each block a unit."""
    from torch.distributed.fsdp import BackwardPrefetch, CPUOffload, FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp import ShardingStrategy as Strategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    device = torch.cuda.current_device()
    model = _model(case)
    given: dict[str, Any] = {"auto_wrap_policy": ModuleWrapPolicy({type(model.blocks[0])}), "device_id": device}
    given["use_orig_params"] = "flat" not in options
    if case.precision == "mixed":
        given["mixed_precision"] = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    if "kept" in options:
        given["sharding_strategy"] = Strategy.SHARD_GRAD_OP
    if "hybrid" in options:
        mesh = init_device_mesh("cuda", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
        given |= {"sharding_strategy": Strategy.HYBRID_SHARD, "device_mesh": mesh}
    if "offload" in options:
        given["cpu_offload"] = CPUOffload(True)
    if "late" in options:
        given["backward_prefetch"] = BackwardPrefetch.BACKWARD_POST
    whole = FullyShardedDataParallel(_Whole(model), **given)
    optimizer = _optimizer(case, whole)
    made = _step(case, whole, optimizer, whole)
    if "clipped" not in options:
        return made

    def step() -> None:
        whole(case.batch).backward()
        whole.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()

    return whole, optimizer, step


def tensor(case: Case, options: list[str]) -> Made:
    """Tensor parallel, by `parallelize_module`; with "sequence" norms and residuals are sharded too."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        loss_parallel,
        parallelize_module,
    )

    world = dist.get_world_size()
    size = 4 if "sharded" in options or "half" in options else world
    mesh = init_device_mesh("cuda", (world // size, size), mesh_dim_names=("dp", "tp"))
    model = _model(case).cuda()
    if case.precision == "bf16":
        model = model.bfloat16()
    sequence = "sequence" in options
    ends: dict[str, Any] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1) if sequence else Replicate()),
        "output": ColwiseParallel(
            input_layouts=Shard(1) if sequence else Replicate(),
            output_layouts=Shard(-1) if "loss" in options else Replicate(),
            use_local_output="loss" not in options,
        ),
    }
    if sequence:
        ends["norm"] = SequenceParallel()
    parallelize_module(model, mesh["tp"], ends)
    for block in model.blocks:
        inner = Shard(1) if sequence else Replicate()
        plan: dict[str, Any] = {
            **dict.fromkeys(("attention.wq", "attention.wk", "attention.wv"), ColwiseParallel()),
            "attention.wo": RowwiseParallel(output_layouts=inner),
            **dict.fromkeys(("feed.w1", "feed.w3"), ColwiseParallel()),
            "feed.w2": RowwiseParallel(output_layouts=inner),
        }
        if sequence:
            gather = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
            plan |= {
                "attention_norm": SequenceParallel(),
                "feed_norm": SequenceParallel(),
                "attention": PrepareModuleInput(**gather),
                "feed": PrepareModuleInput(**gather),
            }
        parallelize_module(block, mesh["tp"], plan)
    if "sharded" in options:
        given: dict[str, Any] = {"mesh": mesh["dp"]}
        if case.precision == "mixed":
            given["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, **given)
        fully_shard(model, **given)
    optimizer = _optimizer(case, model)
    made = _step(case, model, optimizer, model.loss)
    if "loss" not in options:
        return made

    def step() -> None:
        with loss_parallel():
            made[2]()

    return model, optimizer, step


def context(case: Case, options: list[str]) -> Made:
    """Context parallel: a part of every sequence; with "sharded" a part of the weights as well."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    world = dist.get_world_size()
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("cp",))
    set_rotate_method("alltoall" if "rotated" in options else "allgather")
    model = _model(case).cuda()
    if case.precision == "bf16":
        model = model.bfloat16()
    if "sharded" in options:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for block in model.blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = _optimizer(case, model)
    autocast = functools.partial(torch.autocast, "cuda", torch.bfloat16, enabled=case.precision == "autocast")

    def step() -> None:
        tokens = torch.randint(0, model.words, (case.batch, 2048), device="cuda")
        targets = tokens.clone()
        parts = {"buffers": [tokens, targets], "buffer_seq_dims": [1, 1], "no_restore_buffers": {tokens, targets}}
        with context_parallel(mesh, **parts):
            with autocast():
                out = model(tokens)
                value = F.cross_entropy(out.flatten(0, 1).float(), targets.flatten())
            value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def pipeline(case: Case, options: list[str]) -> Made:
    """A stage of a pipeline, or several of them."""
    from torch.distributed import pipelining
    from torch.distributed.fsdp import fully_shard

    world, rank = dist.get_world_size(), dist.get_rank()
    across: Any = None
    if "sharded" in options:
        across = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("pp", "dp"))
        rank, world = across["pp"].get_local_rank(), world // 2
    device = torch.device("cuda", torch.cuda.current_device())
    loops: dict[str, Any] = {
        "interleaved": pipelining.ScheduleInterleaved1F1B,
        "looped": pipelining.ScheduleLoopedBFS,
        "split": pipelining.ScheduleInterleavedZeroBubble,
    }
    loop = next((loops[option] for option in options if option in loops), None)
    each = 2 if loop else 1
    count = each * world
    whole = _model(case)
    width, words, layers = whole.output.in_features, whole.words, len(whole.blocks)
    micro, length = case.batch // 8, 256
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    stages, parts = [], nn.ModuleList()
    for number in range(rank, count, world):
        part = _model(case)
        first, last = number * layers // count, (number + 1) * layers // count
        part.blocks = nn.ModuleList(part.blocks[first:last])
        if number > 0:
            part.embedding = None
        if number < count - 1:
            part.norm = part.output = None
        part = part.to(device, dtype)
        if across is not None:
            for block in part.blocks:
                fully_shard(block, mesh=across["dp"], reshard_after_forward=False)
            fully_shard(part, mesh=across["dp"], reshard_after_forward=False)
        parts.append(part)
        tokens = torch.empty(micro, length, dtype=torch.int64, device="meta")
        hidden = torch.empty(micro, length, width, dtype=dtype, device="meta", requires_grad=True)
        logits = torch.empty(micro, length, words, dtype=dtype, device="meta", requires_grad=True)
        shapes = (tokens if number == 0 else hidden,), (logits if number == count - 1 else hidden,)
        given: dict[str, Any] = {"input_args": shapes[0], "output_args": shapes[1]}
        if across is not None:
            given["group"] = across.get_group("pp")
        stages.append(pipelining.PipelineStage(part, number, count, device, **given))

    def loss(out: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1).float(), target.flatten())

    if loop:
        schedule: Any = loop(stages, case.batch // micro, loss_fn=loss)
    else:
        kind: Any = pipelining.ScheduleGPipe if "gpipe" in options else pipelining.Schedule1F1B
        schedule = kind(stages[0], case.batch // micro, loss_fn=loss)
    optimizer = _optimizer(case, parts)

    def step() -> None:
        tokens = torch.randint(0, words, (case.batch, length), device=device)
        fed = (tokens,) if rank == 0 else ()
        schedule.step(*fed, **({"target": tokens} if rank == world - 1 else {}))
        optimizer.step()
        optimizer.zero_grad()

    return parts, optimizer, step


LAYOUTS: dict[str, Callable[[Case, list[str]], Made]] = {
    function.__name__: function for function in (ddp, fsdp, fsdp1, tensor, context, pipeline)
}


def cases() -> list[Case]:
    """The trainings that are compared."""
    found = [
        Case(model, "ddp", precision)
        for model in ("gpt", "vit", "convnet", "translation")
        for precision in ("fp32", "autocast")
    ]
    found += [
        Case("gpt", "ddp view"),
        Case("llama", "ddp view", "autocast", True),
        Case("llama", "ddp static", "fp32", True),
        Case("vit", "ddp unused"),
        Case("uneven", "ddp small", optimizer="sgd"),
        Case("wide", "ddp view", "bf16", optimizer="fused"),
        Case("gpt", "ddp accumulated"),
        Case("gpt", "ddp view accumulated", rank=5),
        Case("llama", "ddp compressed"),
        Case("convnet", "ddp static view", optimizer="sgd", rank=7),
    ]
    for model in ("gpt", "llama", "wide", "vit", "uneven", "translation"):
        found += [Case(model, "fsdp"), Case(model, "fsdp", "mixed", rank=7)]
    for model in ("gpt", "llama", "wide", "vit"):
        found += [Case(model, "fsdp", "mixed", True), Case(model, "fsdp kept", "mixed")]
    found += [
        Case("llama", "fsdp", "bf16", optimizer="fused"),
        Case("llama", "fsdp", "autocast"),
        Case("llama", "fsdp node", "mixed"),
        Case("llama", "fsdp node", nodes=2),
        Case("gpt", "fsdp offload"),
        Case("llama", "fsdp offload", "mixed", True),
        Case("gpt", "fsdp meta", "mixed"),
        Case("llama", "fsdp host", "mixed"),
        Case("llama", "fsdp pairs", "mixed"),
        Case("gpt", "fsdp whole"),
        Case("llama", "fsdp prefetch", "mixed"),
        Case("llama", "fsdp accumulated", "mixed"),
        Case("gpt", "fsdp accumulated"),
        Case("llama", "fsdp clipped", "mixed"),
        Case("uneven", "fsdp clipped", optimizer="sgd", rank=3),
        Case("llama", "fsdp hybrid", "mixed"),
        Case("wide", "fsdp hybrid", nodes=2, rank=9),
        Case("gpt", "fsdp hybrid", "mixed", True, nodes=2),
        Case("vit", "fsdp hybrid", "autocast"),
        Case("uneven", "fsdp hybrid", rank=7),
        Case("wide", "fsdp", "mixed", processes=2),
        Case("wide", "fsdp", "mixed", True, nodes=8, rank=63),
    ]
    for model in ("gpt", "wide"):
        found += [
            Case(model, "tensor"),
            Case(model, "tensor sequence", "bf16"),
            Case(model, "tensor sequence", "bf16", True, rank=7),
            Case(model, "tensor sharded", "mixed"),
            Case(model, "tensor sequence sharded", "mixed", True, rank=5),
        ]
    found += [
        Case("gpt", "pipeline gpipe", batch=32, processes=2),
        Case("gpt", "pipeline gpipe", batch=32, processes=2, rank=1),
        Case("llama", "pipeline", batch=16, processes=4),
        Case("llama", "pipeline", batch=16, processes=4, rank=1),
        Case("llama", "pipeline", batch=16, processes=4, rank=3),
        Case("llama", "pipeline", "bf16", True, batch=16, processes=4, rank=2),
        Case("llama", "pipeline interleaved", "bf16", batch=16, processes=4),
        Case("llama", "pipeline interleaved", "bf16", batch=16, processes=4, rank=3),
    ]
    return found + _further()


def _further() -> list[Case]:
    """Models with shared, frozen and routed weights, FSDP1, losses on sharded logits, further schedules."""
    found = [Case(model, "ddp", "autocast", batch=8, rank=2) for model in ("tied", "adapters", "mixture")]
    found += [
        Case("adapters", "ddp unused", checkpointed=True),
        Case("tied", "ddp static", "bf16", optimizer="fused"),
        Case("mixture", "ddp view large"),
        Case("llama", "ddp large", "autocast", batch=2, nodes=4, rank=17),
        Case("gpt", "ddp divided", rank=3),
        Case("vit", "ddp divided view", "autocast"),
    ]
    for model in ("tied", "adapters", "mixture"):
        found += [
            Case(model, "fsdp", rank=1),
            Case(model, "fsdp", "mixed", True, batch=8),
            Case(model, "fsdp kept", "mixed", batch=8, rank=6),
            Case(model, "fsdp hybrid", "mixed", nodes=2, rank=11),
        ]
    found += [
        Case("gpt", "fsdp layers", "mixed"),
        Case("llama", "fsdp layers", checkpointed=True, rank=5),
        Case("gpt", "fsdp ignored", "mixed"),
        Case("llama", "fsdp reduced", "mixed", batch=8),
        Case("wide", "fsdp prefetch", checkpointed=True),
        Case("gpt", "fsdp accumulated kept", "mixed"),
        Case("translation", "fsdp offload", rank=2),
        Case("uneven", "fsdp", processes=6, rank=5),
        Case("convnet", "fsdp", batch=16),
        Case("vit", "fsdp", batch=32, nodes=16, rank=100),
    ]
    for model in ("gpt", "llama", "vit"):
        found += [Case(model, "fsdp1"), Case(model, "fsdp1", "mixed", True, rank=7)]
    found += [
        Case("llama", "fsdp1 kept", "mixed"),
        Case("gpt", "fsdp1 flat clipped"),
        Case("gpt", "fsdp1 hybrid", "mixed", nodes=2, rank=9),
        Case("wide", "fsdp1 late", "mixed"),
    ]
    for model in ("gpt", "wide"):
        found += [
            Case(model, "tensor loss"),
            Case(model, "tensor sequence loss", "bf16", True, batch=8),
            Case(model, "tensor loss sharded", "mixed", rank=6),
        ]
    found += [
        Case("llama", "tensor sequence", processes=4, rank=2),
        Case("llama", "tensor half", "autocast", batch=8),
        Case("llama", "tensor sequence sharded", "bf16", nodes=2, rank=13),
    ]
    for rank in (0, 1, 3):
        found += [
            Case("llama", "pipeline gpipe", "bf16", True, rank, batch=32, processes=4),
            Case("llama", "pipeline looped", checkpointed=rank == 1, rank=rank, batch=16, processes=4),
            Case("llama", "pipeline split", "bf16", rank=rank, batch=32, processes=4),
        ]
    found += [Case("llama", "pipeline sharded", "bf16", rank=rank, batch=16) for rank in (0, 3, 7)]
    for model in ("gpt", "llama"):
        found += [
            Case(model, "context", "bf16"),
            Case(model, "context rotated", "autocast", rank=3),
            Case(model, "context sharded", "mixed", True, rank=7),
        ]
    found += [
        Case("wide", "context rotated", "bf16", batch=8, processes=4, rank=1),
        Case("tied", "context", "autocast", True, processes=2, rank=1),
    ]
    return found
