"""AveragedModel for EMA, SWA in the last phase, update_bn at the end: wanted copies."""

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

ds = TensorDataset(torch.randn(640, 1, 28, 28), torch.randint(0, 10, (640,)))
loader = DataLoader(ds, 64, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 784, 10)
)
ema, swa = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99)), AveragedModel(model)
opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
swa_lr = SWALR(opt, swa_lr=0.01)
for epoch in range(5):
    for x, y in loader:
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
        ema.update_parameters(model)
    if epoch >= 3:
        swa.update_parameters(model)
        swa_lr.step()
update_bn(loader, swa)
swa.eval(), ema.eval()
with torch.no_grad():
    print([(m(x).argmax(1) == y).float().mean().item() for m in (swa, ema) for x, y in loader][:3])
