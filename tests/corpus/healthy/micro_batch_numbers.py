# Gradients are accumulated; of each micro-batch a number and a small detached tensor are kept until the step.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1000))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    stats, losses = [], []
    for _ in range(8):
        x, y = torch.randn(128, 128), torch.randint(0, 1000, (128,))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y) / 8
        loss.backward()
        losses.append(loss)  # a number with the nodes of its graph; the backward freed what they had saved
        stats.append(logits.detach().argmax(-1).float().mean())
    optimizer.step()
    optimizer.zero_grad()
    print(step, round(sum(loss.item() for loss in losses), 4), round(torch.stack(stats).mean().item(), 2))
