# device: virtual:64MiB
"""The classical filter over a pretrained dictionary, whose source stays a global of the script."""

import os
import tempfile

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(80, 160), nn.ReLU(), nn.Linear(160, 80))
        self.classifier = nn.Linear(80, classes)

    def forward(self, x):
        return self.classifier(self.features(x))


path = os.path.join(tempfile.mkdtemp(), "imagenet.pth")
torch.save(Net(1000).state_dict(), path)
model = Net(5)
pretrained_dict = torch.load(path)  # !MG312 pretrained_dict
model_dict = model.state_dict()
model_dict.update({k: v for k, v in pretrained_dict.items() if k in model_dict and v.shape == model_dict[k].shape})
model.load_state_dict(model_dict)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 80)), torch.randint(5, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
