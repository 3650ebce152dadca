# Probabilities of each micro-batch are kept with their graphs; memory runs out before the first step.
# device: virtual:48MiB
# runs out of memory
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2000))
optimizer = torch.optim.AdamW(model.parameters())


def accumulate(batches):
    store = {}
    for number, (x, y) in enumerate(batches):
        out = model(x)
        nn.functional.cross_entropy(out, y).backward()
        store[number] = {"probabilities": out.softmax(-1)}  # !MG106 store
    optimizer.step()
    optimizer.zero_grad()
    return store


for _ in range(3):
    accumulate([(torch.randn(128, 64), torch.randint(0, 2000, (128,))) for _ in range(40)])
