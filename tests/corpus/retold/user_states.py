# device: virtual:256MiB
"""An embedding of each of sixty users is computed once, when the user comes by first, and kept for the contrastive term."""

import torch
from torch import nn


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item = nn.Linear(64, 256), nn.Linear(64, 256)
        self.known = {}

    def profile(self, uid, history):
        if uid not in self.known:
            self.known[uid] = self.user(history).detach()
        return self.known[uid]

    def forward(self, uid, history, items):
        return self.item(items) @ self.profile(uid, history).t() + self.user(history).mean()


net = Recommender()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(200):
    loss = net(step % 60, torch.randn(32, 64), torch.randn(64, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
