"""A smoothed value with __slots__, in the manner of the detection references, with tensors where numbers belong."""

import torch
import torch.nn as nn


class SmoothedValue:
    __slots__ = ("values", "count")

    def __init__(self):
        self.values = []
        self.count = 0

    def update(self, value, n=1):
        self.values.append(value)  # !MG101 SmoothedValue.values
        self.count += n

    @property
    def median(self):
        return torch.stack(self.values).detach().median().item()


class MetricLogger:
    def __init__(self, names):
        self.meters = {n: SmoothedValue() for n in names}

    def update(self, **kwargs):
        for k, v in kwargs.items():
            self.meters[k].update(v)

    def __str__(self):
        return "  ".join(f"{k}: {m.median:.4f}" for k, m in self.meters.items())


def train_one_epoch(model, optimizer, loader, logger):
    model.train()
    for images, boxes in loader:
        prediction = model(images)
        loss_box = nn.functional.smooth_l1_loss(prediction[:, :4], boxes)
        loss_obj = nn.functional.softplus(-prediction[:, 4]).mean()
        losses = loss_box + loss_obj
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        logger.update(loss=losses, box=loss_box)
    print(logger)


detector = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 5))
sgd = torch.optim.SGD(detector.parameters(), lr=0.005, momentum=0.9)
loader = [(torch.rand(2, 3, 20, 20), torch.rand(2, 4)) for _ in range(15)]
logger = MetricLogger(["loss", "box"])
for epoch in range(2):
    train_one_epoch(detector, sgd, loader, logger)
