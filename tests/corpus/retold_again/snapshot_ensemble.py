"""Three snapshots at the ends of the cycles of a cyclic schedule, which are used as an ensemble: not a leak."""

import copy

import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 15)
ensemble = []
for step in range(45):
    x, y = torch.randn(16, 16), torch.randint(3, (16,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if (step + 1) % 15 == 0:
        ensemble.append({k: v.detach().cpu().clone() for k, v in net.state_dict().items()})
members = []
for state in ensemble:
    member = copy.deepcopy(net)
    member.load_state_dict(state)
    members.append(member.eval())
with torch.no_grad():
    print(torch.stack([m(torch.randn(8, 16)).softmax(1) for m in members]).mean(0).argmax(1))
