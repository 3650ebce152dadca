# device: virtual:48MiB
# runs out of memory
# cause: validation-graph
"""The whole test set goes through a net that is still in training mode, with gradients on."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def predict(model, x):
    return model(x).argmax(1)


model = Net()
opt = torch.optim.Adam(model.parameters())
for step in range(30):
    x = torch.randn(128, 128)
    loss = model(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
test = torch.randn(14000, 128)
print(predict(model, test).bincount()[:3])
