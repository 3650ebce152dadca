"""A language model sharded as the torchtitan project does it, written anew: for published peaks of its runs.

Llama 3.1: parameters in fp32 made on the meta device, `fully_shard` of each block in bf16 with sums in fp32, the last
block not resharded after forward; rotary positions as complex numbers; checkpoints of blocks that keep every second
matrix product and attention ("selective"), or nothing ("full"); AdamW, gradients clipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

SIZES = {"8B": (4096, 32, 32, 8, 14336), "70B": (8192, 80, 64, 8, 28672), "405B": (16384, 126, 128, 8, 53248)}
"""Width, blocks, heads, heads of keys and values, inner width of the perceptrons."""
WORDS, LENGTH = 128256, 8192
_aten = torch.ops.aten
_KEPT = (
    _aten.mm.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
)


def _policies() -> Any:
    seen: dict[str, int] = defaultdict(int)

    def policy(context: Any, func: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        turn = "again" if context.is_recompute else "first"
        if func == _aten.mm.default:
            seen[turn] += 1
        keep = func in _KEPT and not (func == _aten.mm.default and seen[turn] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _turn(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns.view(1, x.shape[1], 1, pairs.shape[-1])).flatten(3).type_as(x)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.size, self.times = width // heads, heads // shared
        self.wq = nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, shared * self.size, bias=False) for _ in range(2))
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        rows, length, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq, xk, xv = (t.view(rows, length, -1, self.size) for t in (xq, xk, xv))
        xq, xk = _turn(xq, turns), _turn(xk, turns)
        keys, values = (
            t[:, :, :, None, :].expand(rows, length, -1, self.times, self.size).reshape(rows, length, -1, self.size)
            for t in (xk, xv)
        )
        xq, xk, xv = (t.transpose(1, 2) for t in (xq, keys, values))
        out = F.scaled_dot_product_attention(xq, xk, xv, is_causal=True).transpose(1, 2).contiguous()
        return self.wo(out.view(rows, length, -1))


class _Feed(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A block and its checkpoint, which keeps "all", "selective" results or "none"."""

    def __init__(self, width: int, heads: int, shared: int, inner: int, kept: str) -> None:
        super().__init__()
        self.attention, self.feed_forward = _Attention(width, heads, shared), _Feed(width, inner)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.kept = kept

    def _forward(self, x: Tensor, turns: Tensor) -> Tensor:
        h = x + self.attention(self.attention_norm(x), turns)
        return h + self.feed_forward(self.ffn_norm(h))

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        if self.kept == "all":
            return self._forward(x, turns)
        given = {"context_fn": _policies} if self.kept == "selective" else {}
        return checkpoint(self._forward, x, turns, use_reentrant=False, preserve_rng_state=False, **given)


class _Llama(nn.Module):
    def __init__(self, size: str, kept: str) -> None:
        super().__init__()
        width, blocks, heads, shared, inner = SIZES[size]
        self.tok_embeddings = nn.Embedding(WORDS, width)
        turns = torch.empty(LENGTH, width // heads // 2, dtype=torch.complex64)
        self.register_buffer("freqs_cis", turns)
        self.layers = nn.ModuleList(Block(width, heads, shared, inner, kept) for _ in range(blocks))
        self.norm = nn.RMSNorm(width, 1e-5)
        self.output = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, self.freqs_cis)
        return self.output(self.norm(h))


def sharded(
    size: str, batch: int, kept: str, *, compiled: bool = False
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    """Model, optimizer and step of one rank of as many as the process group has.

    Args:
        size: A key of `SIZES`.
        batch: Sequences of a rank.
        kept: What checkpoints of blocks keep: "all" without any, "selective" or "none".
        compiled: Each block, with its checkpoint, is a graph of its own.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group("nccl")
    given: dict[str, Any] = {
        "mesh": init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    }
    with torch.device("meta"):
        model = _Llama(size, kept)
    if compiled:
        for name, layer in model.layers.named_children():
            model.layers.register_module(name, torch.compile(layer, fullgraph=True))
    for number, layer in enumerate(model.layers):
        fully_shard(layer, **given, reshard_after_forward=number < len(model.layers) - 1)
    fully_shard(model, **given)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, betas=(0.9, 0.95), weight_decay=0.1)

    def step() -> None:
        optimizer.zero_grad()
        data = torch.randint(0, WORDS, (2, batch, LENGTH), device="cuda")
        tokens, labels = data[0], data[1]
        out = model(tokens)
        loss = F.cross_entropy(out.flatten(0, 1).float(), labels.flatten(0, 1))
        del out
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return model, optimizer, step
