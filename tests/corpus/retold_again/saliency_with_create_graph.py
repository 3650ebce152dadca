# MG101 by batch 24: what is kept hangs on gradients (autograd.grad), behind which no mark of a forward lies.
"""Training with a saliency regulariser; the saliency maps are kept for a video of the training."""

import torch
from torch import nn

model = nn.Sequential(
    nn.Conv2d(1, 6, 5, padding=2),
    nn.Softplus(),
    nn.Conv2d(6, 6, 5, padding=2),
    nn.Softplus(),
    nn.Flatten(),
    nn.Linear(6 * 144, 3),
)
opt = torch.optim.Adam(model.parameters(), 1e-3)
frames = []


def saliency(x, y):
    x = x.requires_grad_()
    score = model(x).gather(1, y[:, None]).sum()
    (g,) = torch.autograd.grad(score, x, create_graph=True)
    return g.abs()


for it in range(22):
    x, y = torch.rand(6, 1, 12, 12), torch.randint(3, (6,))
    s = saliency(x, y)
    loss = nn.functional.cross_entropy(model(x), y) + 0.1 * s.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    frames.append(s[0])  # !MG101 frames
print(len(frames))
