"""Preference optimisation with a reference model under inference_mode, and logs of numbers."""

import copy

import torch
from torch import nn
from torch.nn.functional import log_softmax, logsigmoid

policy = nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 30))
reference = copy.deepcopy(policy).eval().requires_grad_(False)
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)
rows = []


def score(model, ids):
    return log_softmax(model(ids[:, :-1]), -1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)


for step in range(30):
    good, bad = torch.randint(30, (6, 10)), torch.randint(30, (6, 10))
    with torch.no_grad():
        ref = score(reference, good) - score(reference, bad)
    margin = score(policy, good) - score(policy, bad) - ref
    loss = -logsigmoid(0.1 * margin).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    rows.append({"step": step, "loss": loss.item(), "margin": margin.mean().item()})
