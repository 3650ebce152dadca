# device: virtual:256MiB
"""zero_grad(set_to_none=False) before each forward of a model whose weights are larger than its activations."""

import torch
from torch import nn


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1536, 1536) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def train_step(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=False)  # !MG309 -
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def main():
    model = Wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(16):
        x = torch.randn(256, 1536)
        value = train_step(model, optimizer, x, x.flip(1))
        if step % 4 == 0:
            print(step, value)


main()
