"""Loops with one model: a classifier, a text model, an autoencoder, and ways to step without a plain optimizer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.bench.loops.run import LoopRun


def _digits(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, 64, generator=generator), torch.randint(10, (count,), generator=generator)


def classifier(run: LoopRun) -> None:
    """The simple loop: one model, one optimizer, one step a batch."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = _digits()
    with run.guard(model, optimizer):
        for _ in run.steps():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()


class _CharModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.cell, self.head = nn.Embedding(64, 32), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 64)

    def forward(self, tokens: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, state = self.cell(self.embed(tokens), state)
        return self.head(hidden), state


def char_lm(run: LoopRun) -> None:
    """A recurrent language model whose state is carried and detached, with clipped gradients."""
    model = _CharModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text = torch.randint(64, (16, 17))
    state = torch.zeros(1, 16, 64)
    with run.guard(model, optimizer):
        for _ in run.steps():
            logits, state = model(text[:, :-1], state.detach())
            loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(64, 32), nn.Linear(16, 64)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(images).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return torch.sigmoid(self.decode(code)), mean, log_variance


def vae(run: LoopRun) -> None:
    """A variational autoencoder that keeps each loss as a number."""
    model = _Vae()
    optimizer = torch.optim.Adam(model.parameters())
    images, _ = _digits()
    total = 0.0
    with run.guard(model, optimizer):
        for _ in run.steps():
            optimizer.zero_grad()
            restored, mean, log_variance = model(images)
            divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
            loss = functional.binary_cross_entropy(restored, images, reduction="sum") + divergence
            loss.backward()
            total += loss.item()
            optimizer.step()


def accumulation(run: LoopRun) -> None:
    """Four micro-batches a step."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = _digits()
    with run.guard(model, optimizer):
        for _ in run.steps():
            optimizer.zero_grad()
            for micro, wanted in zip(images.chunk(4), labels.chunk(4), strict=True):
                (functional.cross_entropy(model(micro), wanted) / 4).backward()
            optimizer.step()


def closure(run: LoopRun) -> None:
    """LBFGS, which calls the model through a closure some times a step."""
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    images, labels = _digits()

    def evaluate() -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        return loss

    with run.guard(model, optimizer):
        for _ in run.steps():
            optimizer.step(evaluate)


def no_optimizer(run: LoopRun) -> None:
    """A graph network on one graph, whose weights are moved by hand."""
    weights = nn.ParameterList([nn.Parameter(0.1 * torch.randn(16, 32)), nn.Parameter(0.1 * torch.randn(32, 4))])

    class GraphNetwork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = weights

        def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(edges @ nodes @ self.weights[0])
            return edges @ hidden @ self.weights[1]

    model = GraphNetwork()
    nodes, labels = torch.randn(60, 16), torch.randint(4, (60,))
    edges = torch.softmax(torch.randn(60, 60), dim=1)
    with run.guard(model):
        for _ in run.steps():
            loss = functional.cross_entropy(model(nodes, edges), labels)
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.1 * parameter.grad


def folds(run: LoopRun) -> None:
    """A study: a model and an optimizer of its own for every 200 steps."""
    images, labels = _digits()
    steps = run.steps()
    with run.guard():
        for fold in range(-(-run.total // 200)):
            model = nn.Sequential(nn.Linear(64, 64 + 8 * (fold % 4)), nn.ReLU(), nn.Linear(64 + 8 * (fold % 4), 10))
            optimizer = torch.optim.Adam(model.parameters(), lr=10 ** -(2 + fold % 3))
            for _, _ in zip(range(200), steps, strict=False):
                optimizer.zero_grad()
                functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
        next(steps, None)  # the end of the last step


def validated(run: LoopRun) -> None:
    """Fifty batches of training, then five of validation, in turns."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    images, labels = _digits()
    with run.guard(model, optimizer):
        for step in run.steps():
            model.train()
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            if step % 50 == 49:
                model.eval()
                with torch.no_grad():
                    for _ in range(5):
                        model(images).argmax(1).eq(labels).sum().item()
