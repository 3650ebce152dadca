import math
from functools import partial

import torch
from torch import nn
from torchmetrics import MeanMetric, MetricCollection
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"

N_FEAT, N_LABELS = 40, 24
schedule = partial(
    lambda step, warm, total: min(1.0, step / warm) * 0.5 * (1 + math.cos(math.pi * step / total)), warm=6, total=80
)


class TabularNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(N_FEAT), nn.Linear(N_FEAT, 64), nn.SiLU(), nn.Dropout(0.1), nn.Linear(64, N_LABELS)
        )

    def forward(self, x):
        return self.net(x)


def batches(n, bs=512):
    w = torch.linspace(-1, 1, N_FEAT * N_LABELS).view(N_FEAT, N_LABELS)
    for _ in range(n):
        x = torch.randn(bs, N_FEAT)
        y = (x @ w + torch.randn(bs, N_LABELS) > 1.5).long()
        yield x.to(device), y.to(device)


model = TabularNet().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, schedule)
criterion = nn.BCEWithLogitsLoss()

val_metrics = MetricCollection(
    {
        "auroc": MultilabelAUROC(num_labels=N_LABELS),
        "ap": MultilabelAveragePrecision(num_labels=N_LABELS),
    }
).to(device)
val_loss = MeanMetric().to(device)

for epoch in range(4):
    model.train()
    for x, y in batches(12):
        opt.zero_grad()
        loss = criterion(model(x), y.float())
        loss.backward()
        opt.step()
        sched.step()

    model.eval()
    val_loss.reset()
    with torch.inference_mode():
        for x, y in batches(10):
            logits = model(x)
            val_loss.update(criterion(logits, y.float()))
            val_metrics.update(logits.sigmoid(), y)  # !MG301 val_metrics
    result = {k: round(v.item(), 4) for k, v in val_metrics.compute().items()}
    print(epoch, round(val_loss.compute().item(), 4), result)
