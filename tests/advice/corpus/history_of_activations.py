# device: virtual:40MiB
# runs out of memory
# cause: leak
"""A hook keeps the activations of every batch for a plot at the end."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
opt = torch.optim.Adam(model.parameters())
seen = {"hidden": []}
model[1].register_forward_hook(lambda module, args, out: seen["hidden"].append(out.detach()))
for step in range(400):
    loss = model(torch.randn(256, 64)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(torch.stack(seen["hidden"]).std())
