"""A quick regression that begins to keep its best weights after a warm-up, with each that was better than the last."""
# device: virtual:64MiB
# needs an allocator: long after the first batches nothing but the memory says that something came.

import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
truth = torch.randn(48, 1)
best, smooth = float("inf"), 50.0
kept = []
for step in range(1000):
    x = torch.randn(32, 48)
    loss = nn.functional.mse_loss(model(x), x @ truth)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    smooth = 0.98 * smooth + 0.02 * loss.item()
    if step > 400 and step % 40 == 0 and smooth < best:
        best = smooth
        kept.append(copy.deepcopy(model.state_dict()))  # !MG308 kept
model.load_state_dict(kept[-1])
print(f"{len(kept)} times better, at last {best:.3f}")
