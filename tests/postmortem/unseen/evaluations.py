"""Evaluations that build graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, in_words
from tests.postmortem.unseen.nets import mlp
from tests.postmortem.unseen.sizes import ConvNet, Speech


def evaluate(model: nn.Module, batches: int, n: int, device: str, grad: bool) -> torch.Tensor:
    model.eval()
    with torch.set_grad_enabled(grad):
        scores = [model(torch.zeros(n, 3, 32, 32, device=device)).argmax(1).float().mean() for _ in range(batches)]
    model.train()
    return torch.stack(scores).mean()


def evaluate_larger(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Two epochs, each followed by an evaluation with four times the batch, gradients on."""
    model = ConvNet().to(device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for _ in range(4):
            loss = model(torch.zeros(24 * scale, 3, 32, 32, device=device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        evaluate(model, 3, 96 * scale, device, grad=not fix)


def val_loss_sum(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """The validation loss is summed up with its graph, and eval() forgotten."""
    model = Speech().to(device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        loss = model(torch.zeros(8 * scale, 100, 40, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    val_loss = 0.0
    for _ in range(30):
        if fix == "no_grad":
            with torch.no_grad():
                val_loss += model(torch.zeros(8 * scale, 100, 40, device=device)).square().mean()
        elif fix:
            val_loss += model(torch.zeros(8 * scale, 100, 40, device=device)).square().mean().item()
        else:
            val_loss += model(torch.zeros(8 * scale, 100, 40, device=device)).square().mean()


def generate(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Generation in eval mode, each output the next input, with gradients."""
    model = mlp(64, 6, device)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        loss = model(torch.zeros(64 * scale, 64, device=device)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.set_grad_enabled(not fix):
        state = torch.zeros(64 * scale, 64, device=device)
        for _ in range(100):
            state = model(state)


def val_logits(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """The outputs of a validation are collected with their graphs."""
    model = mlp(128, 4, device)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        loss = model(torch.zeros(64 * scale, 128, device=device)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    logits = []

    def run(x):
        with torch.set_grad_enabled(not fix):
            return model(x)

    for _ in range(12):
        output = run(torch.zeros(256 * scale, 128, device=device))
        logits.append(output)


CASES = {
    "evaluate_larger": Case(evaluate_larger, "36MiB", {"validation-graph"}, in_words("no_grad|inference_mode")),
    "val_loss_sum": Case(val_loss_sum, "24MiB", {"validation-graph", "leak"}, in_words(r"item\(\)|no_grad")),
    "generate": Case(generate, "8MiB", {"validation-graph"}, in_words("no_grad")),
    "val_logits": Case(val_logits, "8MiB", {"validation-graph"}, in_words("no_grad")),
}
