# Distillation with accumulation: the student's maps wait until the step for a similarity that is only logged.
import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
teacher = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()).eval().requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
ACCUMULATE = 6
maps = []
for index in range(30):
    x = torch.randn(4, 3, 40, 40)
    with torch.no_grad():
        target = teacher(x)
    out = student(x)
    loss = (out - target).square().mean() / ACCUMULATE
    loss.backward()
    maps.append(out.sigmoid())  # !MG106 maps
    if (index + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
        print(index, nn.functional.cosine_similarity(maps[0].detach().flatten(), maps[-1].detach().flatten(), 0).item())
        maps.clear()
