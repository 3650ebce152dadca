"""A speech model's train function returns the cost, and the caller keeps it."""

import torch
from torch import nn

model = nn.LSTM(8, 24, batch_first=True)
proj = nn.Linear(24, 6)
opt = torch.optim.Adam([*model.parameters(), *proj.parameters()], lr=1e-3)
ctc = nn.CTCLoss(zero_infinity=True)


def train_model(batch):
    x, target, n = batch
    opt.zero_grad()
    h, _ = model(x)
    cost = ctc(proj(h).log_softmax(-1).transpose(0, 1), target, torch.full((len(x),), x.size(1)), n)
    cost.backward()
    opt.step()
    return cost


costs = []
for i in range(30):
    batch = (torch.randn(3, 20, 8), torch.randint(1, 6, (3, 5)), torch.full((3,), 5))
    costs.append(train_model(batch))  # !MG101 costs
    if i % 10 == 9:
        print(sum(c.item() for c in costs) / len(costs))
