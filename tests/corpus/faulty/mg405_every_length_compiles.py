"""Compiled with static shapes, fed with every length that occurs."""

import random

import torch
import torch._dynamo
from torch import nn

random.seed(0)
torch._dynamo.config.cache_size_limit = 512


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(100, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, t):
        return self.out(torch.tanh(self.emb(t)))


model = Tagger()
fast = torch.compile(model, backend="eager", dynamic=False)  # !MG405 -
opt = torch.optim.SGD(model.parameters(), lr=0.1)
lengths = random.sample(range(10, 400), 30)
for length in lengths:
    tokens = torch.randint(0, 100, (4, length))
    loss = fast(tokens).logsumexp(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
