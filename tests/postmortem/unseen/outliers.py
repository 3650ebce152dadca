"""One batch far above the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, by_value
from tests.postmortem.unseen.sizes import Speech, ViT


def outlier_accumulated(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Gradient accumulation over four micro-batches; one utterance in the middle of a window is an hour long."""
    model = Speech().to(device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    frames = [200, 180, 240, 210, 190, 230, 170, 220, 205, 215, 1900, 200, 210]
    for number, length in enumerate(frames):
        length = min(length, fix) if fix else length
        loss = model(torch.zeros(8 * scale, length, 40, device=device)).square().mean() / 4
        loss.backward()
        if number % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.msg = nn.ModuleList(nn.Linear(48, 48) for _ in range(6))
        self.node = nn.Embedding(20, 48)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h = self.node(nodes)
        for layer in self.msg:
            m = torch.relu(layer(h[edges[0]]))
            h = h + torch.zeros_like(h).index_add(0, edges[1], m)
        return h.sum()


def giant_graph(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Graphs packed into one batch; the number of edges is what counts, and one graph is huge."""
    model = GraphNet().to(device)
    guard.add(model)
    optimizer = torch.optim.Adam(model.parameters())
    for edges in [2000, 2300, 1800, 2600, 2100, 1900, 2400, 2200, 20000, 2000]:
        edges *= scale
        edges = min(edges, fix) if fix else edges
        nodes = torch.zeros(edges // 8, dtype=torch.long, device=device)
        index = torch.zeros(2, edges, dtype=torch.long, device=device)
        loss = model(nodes, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def boxes(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """An image with many more boxes than the others."""
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).to(device)
    guard.add(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in [500, 640, 420, 580, 610, 450, 9000, 500]:
        n *= scale
        n = min(n, fix) if fix else n
        loss = model(torch.zeros(n, 32, device=device)).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()


def long_sequence(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A long sequence under attention, which needs more than in proportion."""
    model = ViT(depth=3).to(device)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    for t in [64, 80, 72, 96, 60, 88, 76, 70, 420, 64]:
        t = min(t, fix) if fix else t
        loss = model(torch.zeros(2 * scale, t, 48, device=device)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


CASES = {
    "outlier_accumulated": Case(outlier_accumulated, "48MiB", {"long-batch"}, by_value),
    "giant_graph": Case(giant_graph, "32MiB", {"long-batch"}, by_value),
    "boxes": Case(boxes, "24MiB", {"long-batch"}, by_value),
    "long_sequence": Case(long_sequence, "40MiB", {"long-batch"}, by_value),
}
