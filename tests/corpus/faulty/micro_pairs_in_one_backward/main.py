# device: virtual:256MiB
# DPO: the losses of all micro-batches of pairs are stacked, and one backward runs through all of their graphs.
import copy

import torch
from torch import nn
from trainer import PairTrainer

torch.manual_seed(0)
policy = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1000))
trainer = PairTrainer(policy, copy.deepcopy(policy).requires_grad_(False))
for step in range(5):
    pairs = [(torch.randint(0, 1000, (2, 65)), torch.randint(0, 1000, (2, 65))) for _ in range(8)]
    print("step", step, round(trainer.step(pairs), 4), flush=True)
