# device: virtual:256MiB
"""SwAV: the queue starts in the third epoch, allocated then; prototypes are frozen for the first epoch."""

import torch
from torch import nn
import torch.nn.functional as F


@torch.no_grad()
def sinkhorn(s, n=3):
    q = torch.exp(s / 0.05).t()
    q /= q.sum()
    for _ in range(n):
        q /= q.sum(1, keepdim=True) * len(q)
        q /= q.sum(0, keepdim=True) * q.size(1)
    return (q * q.size(1)).t()


net, protos = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128)), nn.Linear(128, 50, bias=False)
opt = torch.optim.SGD([*net.parameters(), *protos.parameters()], 0.05)
queue = None
for epoch in range(5):
    if epoch == 2:
        queue = torch.zeros(2, 512, 128)
    for _ in range(20):
        x = torch.randn(64, 128)
        z = [F.normalize(net(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2)]
        loss = 0
        for i in range(2):
            with torch.no_grad():
                out = protos(z[i])
                if queue is not None:
                    if not torch.all(queue[i, -1] == 0):
                        out = torch.cat([protos(queue[i]), out])
                    queue[i, 64:] = queue[i, :-64].clone()
                    queue[i, :64] = z[i]
                target = sinkhorn(out)[-64:]
            loss = loss - (target * F.log_softmax(protos(z[1 - i]) / 0.1, 1)).sum(1).mean()
        opt.zero_grad()
        loss.backward()
        if epoch < 1:
            protos.weight.grad = None
        opt.step()
