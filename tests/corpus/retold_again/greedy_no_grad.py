"""A caption model that samples after each epoch within inference_mode."""

import torch
from torch import nn

emb, cell, out = nn.Embedding(20, 16), nn.GRUCell(16, 24), nn.Linear(24, 20)
model = nn.ModuleList([emb, cell, out])
opt = torch.optim.Adam(model.parameters())


@torch.inference_mode()
def sample(n=6):
    model.eval()
    h, token, text = torch.zeros(4, 24), torch.zeros(4, dtype=torch.long), []
    for _ in range(n):
        h = cell(emb(token), h)
        token = torch.distributions.Categorical(logits=out(h)).sample()
        text.append(token)
    model.train()
    return torch.stack(text, 1).tolist()


for epoch in range(4):
    for _ in range(10):
        ids, h, loss = torch.randint(20, (8, 7)), torch.zeros(8, 24), 0.0
        for t in range(6):
            h = cell(emb(ids[:, t]), h)
            loss = loss + nn.functional.cross_entropy(out(h), ids[:, t + 1])
        opt.zero_grad()
        loss.backward()
        opt.step()
    sample()
