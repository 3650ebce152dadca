"""Phase one trains an autoencoder, phase two its encoder with a classifier; the decoder is dropped; optimizers anew."""

import torch
from torch import nn

enc, dec = (
    nn.Sequential(nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, 16)),
    nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 200)),
)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()])
for _ in range(40):
    x = torch.randn(64, 200)
    loss = (dec(enc(x)) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
del dec, opt
clf = nn.Linear(16, 4)
opt = torch.optim.Adam([{"params": enc.parameters(), "lr": 1e-4}, {"params": clf.parameters()}])
for _ in range(40):
    x, y = torch.randn(64, 200), torch.randint(0, 4, (64,))
    loss = nn.functional.cross_entropy(clf(enc(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
