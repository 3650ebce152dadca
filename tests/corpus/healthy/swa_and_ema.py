"""torch.optim.swa_utils with an EMA, evaluated under inference_mode, batch norm updated in the end."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
swa = AveragedModel(model)
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
swa_scheduler = SWALR(optimizer, swa_lr=0.05)
data = [(torch.randn(16, 16), torch.randint(3, (16,))) for _ in range(15)]
for epoch in range(4):
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        ema.update_parameters(model)
    if epoch >= 2:
        swa.update_parameters(model)
        swa_scheduler.step()
    ema.eval()
    with torch.inference_mode():
        accuracy = sum((ema(x).argmax(1) == y).float().mean().item() for x, y in data) / len(data)
    ema.train()
update_bn([x for x, _ in data], swa)
