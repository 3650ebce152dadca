"""A teacher that joins after a warm-up of two hundred batches."""

import torch
from torch import nn

torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))


model, teacher = net(), net().eval()
opt = torch.optim.Adam(model.parameters())
for step in range(320):
    x, y = torch.randn(256, 64), torch.randint(0, 10, (256,))
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    if step >= 200:
        soft = teacher(x)  # !MG202 teacher
        loss = loss + (out - soft.detach()).pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(loss.item())
