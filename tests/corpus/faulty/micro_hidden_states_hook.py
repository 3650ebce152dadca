# A hook collects the features of every micro-batch for a statistic that is logged once a step.
import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU())
head = nn.Linear(1024, 10)
model = nn.Sequential(backbone, head)
optimizer = torch.optim.AdamW(model.parameters())
features = []


def collect(module, args, output):
    features.append(output.square())  # !MG106 features


backbone.register_forward_hook(collect)
for step in range(5):
    for _ in range(8):
        loss = nn.functional.cross_entropy(model(torch.randn(96, 128)), torch.randint(0, 10, (96,))) / 8
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, torch.stack([f.detach().mean() for f in features]).mean().item())
    features.clear()
