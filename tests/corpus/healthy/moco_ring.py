# device: virtual:64MiB
import torch
from torch import nn
import torch.nn.functional as F


class Queue(nn.Module):
    def __init__(self, size=2048, dim=64):
        super().__init__()
        self.register_buffer("keys", torch.randn(size, dim))
        self.at = 0

    @torch.no_grad()
    def push(self, k):
        self.keys[self.at : self.at + len(k)] = k
        self.at = (self.at + len(k)) % len(self.keys)


q, queue = nn.Linear(128, 64), Queue()
opt = torch.optim.SGD(q.parameters(), lr=0.03)
for _ in range(200):
    x = torch.randn(64, 128)
    z = F.normalize(q(x), dim=1)
    loss = (z @ queue.keys.T).logsumexp(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue.push(z.detach())
