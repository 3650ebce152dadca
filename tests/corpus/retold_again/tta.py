# device: virtual:256MiB
"""Test-time augmentation: eight views per batch, averaged under inference_mode; outputs of the epoch on CPU as numbers."""

import torch
from torch import nn

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
)
opt = torch.optim.Adam(net.parameters())


@torch.inference_mode()
def predict(x):
    net.eval()
    views = [
        net(v) for v in (x, x.flip(-1), x.flip(-2), x.rot90(1, (2, 3)), x.roll(2, -1), x.roll(-2, -1), x * 0.9, x * 1.1)
    ]
    return torch.stack(views).softmax(-1).mean(0)


for epoch in range(3):
    net.train()
    for _ in range(10):
        opt.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(16, 3, 32, 32)), torch.randint(0, 10, (16,))).backward()
        opt.step()
    preds = []
    for _ in range(12):
        preds.extend(predict(torch.randn(32, 3, 32, 32)).argmax(1).tolist())
    print(epoch, len(preds))
