# A schedule of a pipeline: the forwards of all micro-batches, then their backwards; that it keeps them is the plan.
import torch
from torch import nn

torch.manual_seed(0)
stages = nn.ModuleList(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)) for _ in range(2))
optimizer = torch.optim.SGD(stages.parameters(), lr=0.01)
for step in range(6):
    outputs = []
    for _ in range(8):
        hidden = stages[0](torch.randn(128, 256))
        outputs.append(stages[1](hidden))
    for output in outputs:
        (output.square().mean() / 8).backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, round(sum(output.abs().mean().item() for output in outputs), 4))
