"""The weights of the last steps lie in a window that gives the oldest back; their mean is what is evaluated."""
# device: virtual:16MiB

from collections import OrderedDict

import torch
from torch import nn


class Window:
    def __init__(self, size):
        self.size = size
        self.weights = OrderedDict()

    def put(self, step, model):
        self.weights[step] = {name: value.detach().clone() for name, value in model.named_parameters()}
        if len(self.weights) > self.size:
            self.weights.popitem(last=False)

    def mean(self):
        states = list(self.weights.values())
        return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters())
window = Window(24)
for step in range(300):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    window.put(step, model)
x = torch.randn(256, 8)
with torch.no_grad():
    out = torch.func.functional_call(model, window.mean(), (x,))
print(f"{nn.functional.mse_loss(out, x.prod(1, keepdim=True)).item():.4f}")
