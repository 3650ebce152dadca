"""Speaker verification with an additive margin softmax over many speakers."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(33)
N_SPEAKERS, EMB = 20000, 256


class XVector(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.Conv1d(40, 256, 5), nn.ReLU(), nn.Conv1d(256, 256, 3, dilation=2), nn.ReLU())
        self.seg = nn.Linear(512, EMB)

    def forward(self, mel):
        h = self.frame(mel)
        return self.seg(torch.cat([h.mean(-1), h.std(-1)], -1))


class AMSoftmax(nn.Module):
    def __init__(self, m=0.2, s=30.0):
        super().__init__()
        self.w = nn.Parameter(torch.randn(N_SPEAKERS, EMB) * 0.05)
        self.m, self.s = m, s

    def forward(self, emb, spk):
        cos = F.normalize(emb) @ F.normalize(self.w).T
        cos = cos - F.one_hot(spk, N_SPEAKERS) * self.m
        return F.cross_entropy(self.s * cos, spk)


model, head = XVector(), AMSoftmax()
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.02)

for step in range(32):
    mel, spk = torch.randn(32, 40, 150), torch.randint(0, N_SPEAKERS, (32,))
    optimizer.zero_grad(set_to_none=False)  # !MG309 -
    loss = head(model(mel), spk)
    loss.backward()
    optimizer.step()
    if step % 8 == 0:
        print("step", step, "loss", round(loss.item(), 4))
