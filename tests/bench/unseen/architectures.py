"""Models of several fields, written as their users write them: recurrent, routed, graph, diffusion, adapted, dense."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CUDA = "cuda"


def packed_sequences() -> tuple[Any, Any, Any]:
    """A bidirectional LSTM over packed sequences, without cuDNN."""
    torch.backends.cudnn.enabled = False
    words, head = nn.Embedding(3000, 128, padding_idx=0).to(CUDA), nn.Linear(512, 3000).to(CUDA)
    recurrent = nn.LSTM(128, 256, 2, dropout=0.2, bidirectional=True, batch_first=True).to(CUDA)
    model = nn.ModuleList([words, recurrent, head])
    optimizer = torch.optim.Adagrad(model.parameters())
    lengths = torch.arange(64, 32, -1)

    def step() -> None:
        text = torch.randint(1, 3000, (32, 64), device=CUDA)
        packed = pack_padded_sequence(words(text), lengths, batch_first=True)
        out, _ = pad_packed_sequence(recurrent(packed)[0], batch_first=True)
        F.cross_entropy(head(out).flatten(0, 1), text.flatten(), ignore_index=0).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


class _Routed(nn.Module):
    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 4 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 4 * width, width) * 0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.reshape(-1, x.shape[-1])
        room = 2 * tokens.shape[0] // self.router.out_features
        chances = self.router(tokens).float().softmax(-1)
        weight, chosen = chances.topk(2, -1)
        seats = F.one_hot(chosen, self.router.out_features).float()
        order = (seats.flatten(0, 1).cumsum(0) - 1).view_as(seats)
        kept = seats * (order < room)
        places = F.one_hot((order * kept).sum(-1).long().clamp(max=room - 1), room).float()
        send = torch.einsum("nke,nkc->nec", kept, places)
        combine = torch.einsum("nk,nke,nkc->nec", weight, kept, places)
        inside = torch.einsum("nec,nd->ecd", send.to(x.dtype), tokens)
        inside = torch.bmm(F.gelu(torch.bmm(inside, self.up)), self.down)
        balance = (chances.mean(0) * seats.sum(1).mean(0)).sum() * self.router.out_features
        return torch.einsum("nec,ecd->nd", combine.to(inside.dtype), inside).view_as(x), balance


def routed_experts() -> tuple[Any, Any, Any]:
    """A mixture of experts with capacity, dispatched by einsum, and its balancing loss; bf16 autocast."""
    model = nn.ModuleList([nn.Embedding(2000, 192), _Routed(192, 8), _Routed(192, 8), nn.Linear(192, 2000)]).to(CUDA)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        words = torch.randint(0, 2000, (8, 64), device=CUDA)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            x, extra = model[0](words), 0.0
            for layer in (model[1], model[2]):
                y, balance = layer(x)
                x, extra = x + y, extra + balance
            loss = F.cross_entropy(model[3](x).flatten(0, 1), words.flatten()) + 0.01 * extra
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


class _GraphAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.project = heads, nn.Linear(width, width, bias=False)
        self.source, self.target = nn.Parameter(torch.randn(heads, width // heads)), nn.Parameter(torch.randn(heads, 1))

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        h = self.project(nodes).view(nodes.shape[0], self.heads, -1)
        score = F.leaky_relu((h * self.source).sum(-1)[edges[0]] + (h * self.target).sum(-1)[edges[1]], 0.2)
        index = edges[1].unsqueeze(-1).expand_as(score)
        highest = score.new_full((nodes.shape[0], self.heads), -1e9).scatter_reduce(0, index, score, "amax")
        score = (score - highest[edges[1]].detach()).exp()
        total = torch.zeros_like(highest).scatter_add(0, index, score)
        messages = h[edges[0]] * (score / (total[edges[1]] + 1e-9)).unsqueeze(-1)
        return torch.zeros_like(h).index_add_(0, edges[1], messages).flatten(1)


def graph_attention() -> tuple[Any, Any, Any]:
    """Attention over the edges of a graph, with softmax over the edges that meet in a node."""
    model = nn.ModuleList([nn.Linear(64, 128), _GraphAttention(128, 4), _GraphAttention(128, 4), nn.Linear(128, 7)])
    model = model.to(CUDA)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=5e-4)
    nodes, labels = torch.randn(4000, 64, device=CUDA), torch.randint(0, 7, (4000,), device=CUDA)
    edges = torch.randint(0, 4000, (2, 40000), device=CUDA)

    def step() -> None:
        x = F.elu(model[0](nodes))
        for layer in (model[1], model[2]):
            x = F.dropout(F.elu(layer(x, edges)), 0.3) + x
        F.nll_loss(F.log_softmax(model[3](x), -1), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


class _Stage(nn.Module):
    def __init__(self, narrow: int, wide: int, attends: bool) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, narrow), nn.SiLU(), nn.Conv2d(narrow, wide, 3, padding=1))
        self.time, self.skip = nn.Linear(256, 2 * wide), nn.Conv2d(narrow, wide, 1)
        self.norm, self.second = nn.GroupNorm(8, wide, affine=False), nn.Conv2d(wide, wide, 3, padding=1)
        self.mix = nn.Conv2d(wide, 3 * wide, 1) if attends else None

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        h = self.norm(self.first(x)) * (1 + scale) + shift
        h = self.skip(x) + self.second(F.dropout(F.silu(h), 0.1))
        if self.mix is None:
            return h
        samples, channels, height, width = h.shape
        q, k, v = self.mix(h).view(samples, 3, 4, channels // 4, -1).transpose(-1, -2).contiguous().unbind(1)
        seen = F.scaled_dot_product_attention(q, k, v)
        return h + seen.transpose(-1, -2).reshape(samples, channels, height, width)


class _Denoiser(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(width, 256), nn.SiLU(), nn.Linear(256, 256))
        self.down = nn.ModuleList([_Stage(width, width, False), _Stage(width, 2 * width, True)])
        self.middle = _Stage(2 * width, 2 * width, True)
        self.up = nn.ModuleList([_Stage(4 * width, width, True), _Stage(2 * width, width, False)])

    def forward(self, x: Tensor, when: Tensor) -> Tensor:
        waves = torch.exp(torch.arange(32, device=x.device) * (-math.log(1e4) / 32))
        angle = when.float()[:, None] * waves
        time, kept = self.time(torch.cat([angle.sin(), angle.cos()], 1)), []
        x = self.enter(x)
        for stage in self.down:
            x = stage(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        for stage in self.up:
            x = stage(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1), time)
        return self.leave(F.silu(x))


def diffusion_with_average() -> tuple[Any, Any, Any]:
    """A denoiser in bf16 autocast whose weights' running average is kept by foreach operations."""
    model = _Denoiser().to(CUDA)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-4, amsgrad=True)
    left = torch.linspace(0.999, 0.02, 1000, device=CUDA).cumprod(0)

    def step() -> None:
        image = torch.rand(8, 3, 32, 32, device=CUDA) * 2 - 1
        when, noise = torch.randint(0, 1000, (8,), device=CUDA), torch.randn_like(image)
        share = left.gather(0, when).view(-1, 1, 1, 1)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = model(share.sqrt() * image + (1 - share).sqrt() * noise, when)
            loss = (F.mse_loss(found, noise, reduction="none").mean((1, 2, 3)) / (1 + share.flatten())).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            slow, fast = list(average.parameters()), list(model.parameters())
            torch._foreach_mul_(slow, 0.999)
            torch._foreach_add_(slow, fast, alpha=0.001)

    return model, optimizer, step


PROGRAMS = {
    "packed sequences": packed_sequences,
    "routed experts": routed_experts,
    "graph attention": graph_attention,
    "diffusion with running average": diffusion_with_average,
}
