"""Three workers, the worst replaced by a copy of the best: three models, always."""

import torch
from torch import nn

workers = [nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 1)) for _ in range(3)]
opts = [torch.optim.SGD(w.parameters(), lr=0.05) for w in workers]
for generation in range(10):
    scores = []
    for model, opt in zip(workers, opts):
        for _ in range(3):
            x = torch.randn(16, 20)
            loss = (model(x) - x.mean(1, keepdim=True)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        scores.append(loss.item())
    best, worst = scores.index(min(scores)), scores.index(max(scores))
    workers[worst].load_state_dict(workers[best].state_dict())
