"""Two losses on a shared encoder, two optimizers: the first backward retains, the second frees."""

import torch
from torch import nn

enc, cls, dec = nn.Linear(20, 16), nn.Linear(16, 3), nn.Linear(16, 20)
opt_c = torch.optim.Adam([*enc.parameters(), *cls.parameters()])
opt_d = torch.optim.Adam(dec.parameters())
for _ in range(40):
    x, y = torch.randn(16, 20), torch.randint(3, (16,))
    z = enc(x)
    loss_c = nn.functional.cross_entropy(cls(z), y)
    loss_d = nn.functional.mse_loss(dec(z), x)
    opt_c.zero_grad()
    opt_d.zero_grad()
    loss_c.backward(retain_graph=True)
    loss_d.backward()
    opt_c.step()
    opt_d.step()
