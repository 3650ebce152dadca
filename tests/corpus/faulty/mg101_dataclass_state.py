from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class TrainState:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    losses: list = field(default_factory=list)


def train_step(state: TrainState, x: torch.Tensor, y: torch.Tensor) -> TrainState:
    state.model.train()
    logits = state.model(x)
    loss = nn.functional.binary_cross_entropy_with_logits(logits.squeeze(1), y)
    state.optimizer.zero_grad()
    loss.backward()
    state.optimizer.step()
    state.step += 1
    state.losses.append(loss)  # !MG101 TrainState.losses
    return state


model = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 1))
state = TrainState(model, torch.optim.Adam(model.parameters()))
for _ in range(30):
    x = torch.randn(16, 10)
    state = train_step(state, x, (x.sum(1) > 0).float())
