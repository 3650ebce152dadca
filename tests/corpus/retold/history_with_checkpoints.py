"""Trainer state with nested history; the loss of each step goes into a record beside numbers."""

import time
from types import SimpleNamespace

import torch
from torch import nn


def train(state, model, optimizer, batches):
    for x, y in batches:
        began = time.time()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.smooth_l1_loss(model(x), y)
        loss.backward()
        optimizer.step()
        state.step += 1
        state.history.train.append({"step": state.step, "seconds": time.time() - began, "loss": loss})  # !MG101 state.history.train
    return state


model = nn.Sequential(nn.Linear(7, 14), nn.Mish(), nn.Linear(14, 7))
state = SimpleNamespace(step=0, history=SimpleNamespace(train=[], valid=[]))
train(state, model, torch.optim.NAdam(model.parameters()), [(torch.randn(8, 7), torch.randn(8, 7)) for _ in range(30)])
