# device: virtual:224MiB
"""zero_grad(set_to_none=False): the gradients are never gone."""

import torch
from torch import nn

embedding = nn.Embedding(60000, 64)
project = nn.Linear(64, 64)
model = nn.Sequential(embedding, project)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
for step in range(12):
    opt.zero_grad(set_to_none=False)  # !MG309 -
    tokens = torch.randint(60000, (256, 120))
    loss = model(tokens).pow(2).mean()
    loss.backward()
    opt.step()
    del loss
