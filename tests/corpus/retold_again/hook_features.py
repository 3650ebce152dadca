"""Feature statistics by forward hook: each call's output goes into a per-layer list, graph and all."""

import torch
from torch import nn

features = {}


def get_features(name):
    features[name] = []

    def hook(module, args, output):
        features[name].append(output.mean(dim=(2, 3)))  # !MG101 features

    return hook


class SmallResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.block = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.block(x)
        return self.fc(x.mean((2, 3)))


model = SmallResNet()
for name in ("stem", "block"):
    getattr(model, name).register_forward_hook(get_features(name))
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for i in range(40):
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    opt.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    opt.step()
print({k: len(v) for k, v in features.items()})
