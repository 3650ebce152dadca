# device: virtual:256MiB
# "Accumulation" by adding up losses: the graphs of all micro-batches live until the one backward.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()
accumulation_steps = 8
for step in range(5):
    optimizer.zero_grad()
    loss_total = 0
    for _ in range(accumulation_steps):
        x, y = torch.randn(8, 3, 48, 48), torch.randint(0, 10, (8,))
        loss_i = criterion(model(x), y)
        loss_total = loss_total + loss_i / accumulation_steps  # !MG106 loss_total
    loss_total.backward()
    optimizer.step()
    print("step", step, round(loss_total.item(), 3), flush=True)
