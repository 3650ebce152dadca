"""Momentum contrast for speech frames: key queue, first-frame embeddings collected for a nearest-neighbour score."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.g = nn.Conv1d(40, 96, 5, padding=2), nn.GRU(96, 96, batch_first=True)

    def forward(self, x):
        return F.normalize(self.g(F.relu(self.c(x)).transpose(1, 2))[0], dim=-1)


torch.manual_seed(8)
q = Enc()
k = copy.deepcopy(q).requires_grad_(False)
queue, ptr = F.normalize(torch.randn(2048, 96), dim=-1), 0
speakers = torch.randn(4000, 40, 1)
opt = torch.optim.SGD(q.parameters(), 0.03, momentum=0.9)
bank, rows = [], []
for it in range(40):
    spk = torch.randint(4000, (32,))
    rows.append(speakers[int(spk[0])])
    x = speakers[spk] + torch.randn(32, 40, 100)
    zq = q(x)
    with torch.no_grad():
        for a, b in zip(q.parameters(), k.parameters()):
            b.lerp_(a, 0.01)
        zk = k(x.flip(-1))
        bank.append(zk[:, 0].clone())
    logits = torch.cat([(zq[:, -1] * zk[:, -1]).sum(-1, keepdim=True), zq[:, -1] @ queue.t()], 1) / 0.07
    loss = F.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue[ptr : ptr + 32] = zk[:, -1]
    ptr = (ptr + 32) % len(queue)
    if it % 10 == 0:
        print(it, loss.item())
feats = torch.cat(bank)
print((feats @ feats.t()).fill_diagonal_(-1).amax(1).mean().item(), torch.stack(rows).std().item())
