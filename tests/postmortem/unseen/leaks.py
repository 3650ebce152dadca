"""Tensors and graphs of every batch that something keeps."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, in_words
from tests.postmortem.unseen.nets import mlp


class Trainer:
    def __init__(self, model: nn.Module, fixed: bool) -> None:
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())
        self.history: dict[int, dict[str, Any]] = {}
        self.fixed = fixed

    def step(self, number: int, images: torch.Tensor) -> None:
        logits = self.model(images)
        loss = logits.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.fixed:
            self.history[number] = {"loss": loss.item(), "logits": logits.detach().cpu().numpy().copy()}
        else:
            self.history[number] = {"loss": loss, "logits": logits}


def dict_of_outputs(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Outputs kept per step in a dictionary of the trainer, with losses."""
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 512)).to(device)
    guard.add(model)
    trainer = Trainer(model, bool(fix))
    for number in range(60):
        trainer.step(number, torch.zeros(128 * scale, 128, device=device))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inp = nn.Linear(32, 64)
        self.rec = nn.Linear(64, 64)
        self.out = nn.Linear(64, 32)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for t in range(x.size(1)):
            state = torch.tanh(self.inp(x[:, t]) + self.rec(state))
        return self.out(state), state


def hidden_state(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A recurrent state carried over, with retain_graph=True since the error message said so."""
    model = Recurrent().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    n = 128 * scale
    hidden = torch.zeros(n, 64, device=device)
    for _ in range(60):
        x = torch.zeros(n, 6, 32, device=device)
        out, hidden = model(x, hidden)
        if fix:
            hidden = hidden.detach()
        loss = out.square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=not fix)


def kept_predictions(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Predictions of a whole validation pass kept on the device, under no_grad."""
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256)).to(device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    n = 256 * scale
    for _ in range(5):
        loss = model(torch.zeros(n, 64, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    all_preds = []
    with torch.no_grad():
        for _ in range(80):
            p = model(torch.zeros(n, 64, device=device))
            all_preds.append(p.cpu().numpy().copy() if fix else p)


class Meter:
    def __init__(self):
        self.values = []

    def update(self, v):
        self.values.append(v)


def meter(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Meters keep the loss and the features of every batch."""
    model = mlp(128, 4, device)
    guard.add(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    meters = {"loss": Meter(), "feat": Meter()}
    for _ in range(80):
        f = model(torch.zeros(256 * scale, 128, device=device))
        loss = f.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        meters["loss"].update(loss.item() if fix else loss)
        meters["feat"].update(f.detach().cpu().numpy().copy() if fix else f.detach())


FEATURES: dict[int, torch.Tensor] = {}


def hook_leak(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A forward hook keeps the activations of every batch in a global."""
    FEATURES.clear()
    model = mlp(128, 6, device)
    count = [0]

    def keep(mod, args, out):
        count[0] += 1
        FEATURES[count[0] if not fix else 0] = out

    model[4].register_forward_hook(keep)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    try:
        for _ in range(80):
            loss = model(torch.zeros(256 * scale, 128, device=device)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    finally:
        FEATURES.clear()


def ema_loss(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A running mean of the loss carries the graphs of all losses."""
    model = mlp(64, 8, device)
    guard.add(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.0)
    running = torch.zeros((), device=device)
    for _ in range(60):
        y = model(torch.zeros(128 * scale, 64, device=device))
        loss = y.square().mean()
        (loss * 1.0).backward(retain_graph=True)
        opt.step()
        opt.zero_grad()
        running = 0.9 * running + 0.1 * (loss.item() if fix else loss)


CASES = {
    "dict_of_outputs": Case(dict_of_outputs, "16MiB", {"leak"}, in_words(r"detach|item\(\)")),
    "hidden_state": Case(hidden_state, "16MiB", {"leak"}, in_words(r"detach")),
    "kept_predictions": Case(kept_predictions, "16MiB", {"leak"}, in_words(r"\.cpu\(\)|to the CPU|to host|CPU")),
    "meter": Case(meter, "10MiB", {"leak"}, in_words(r"detach|item\(\)|CPU")),
    "hook_leak": Case(hook_leak, "10MiB", {"leak"}, in_words(r"detach|item\(\)|CPU")),
    "ema_loss": Case(ema_loss, "12MiB", {"leak"}, in_words(r"detach|item\(\)|CPU")),
}
