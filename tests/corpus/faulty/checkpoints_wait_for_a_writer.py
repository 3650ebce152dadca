# device: virtual:256MiB
# Checkpoints wait in host memory until a writer that is too slow takes them.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))
optimizer = torch.optim.AdamW(model.parameters())
queue = []
for step in range(30):
    model(torch.randn(64, 512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 3 == 0:
        queue.append({"model": {k: v.detach().clone() for k, v in model.state_dict().items()}})  # !MG308 queue
