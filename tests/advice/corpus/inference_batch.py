# device: virtual:40MiB
# runs out of memory
# cause: size
"""Inference under no_grad with a batch that is too large."""

import torch
from torch import nn

model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 10),
).eval()
images = [torch.randn(96, 3, 64, 64) for _ in range(1)]


@torch.inference_mode()
def classify(batches):
    return [model(x).argmax(1) for x in batches]


print(len(classify(images)))
