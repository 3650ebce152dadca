"""SWA, an EMA and the best state so far; batch-norm statistics renewed at the end."""

import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

net = nn.Sequential(nn.Linear(10, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
swa, ema = AveragedModel(net), AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
data = [torch.randn(32, 10) for _ in range(12)]
best, best_state = float("inf"), None
for epoch in range(6):
    net.train()
    for x in data:
        loss = (net(x).squeeze(1) - x.sum(1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(net)
    if epoch >= 3:
        swa.update_parameters(net)
    net.eval()
    with torch.no_grad():
        val = sum((net(x).squeeze(1) - x.sum(1)).pow(2).mean().item() for x in data)
    if val < best:
        best, best_state = val, copy.deepcopy(net.state_dict())
update_bn(data, swa)
net.load_state_dict(best_state)
