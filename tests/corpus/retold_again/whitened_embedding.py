"""Two-layer embedding network whose features are whitened with running second moments."""

import torch
import torch.nn.functional as F
from torch import nn


class RunningScale(nn.Module):
    def __init__(self, width, momentum=0.95):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("second_moment", torch.ones(width))

    def forward(self, feats):
        if self.training:
            batch = feats.pow(2).mean(0)
            m = self.momentum
            self.second_moment = m * self.second_moment + (1 - m) * batch  # !MG102 RunningScale.second_moment
        return feats / (self.second_moment.detach().sqrt() + 1e-5)


def build():
    return nn.Sequential(
        nn.Linear(40, 384),
        nn.ReLU(),
        RunningScale(384),
        nn.Linear(384, 384),
        nn.ReLU(),
        RunningScale(384),
        nn.Linear(384, 6),
    )


def batches(count, size, seed):
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(6, 40, generator=torch.Generator().manual_seed(99))
    remaining = count
    while remaining:
        y = torch.randint(0, 6, (size,), generator=rng)
        yield centres[y] + 1.5 * torch.randn(size, 40, generator=rng), y
        remaining -= 1


def train_epoch(net, opt, epoch):
    net.train()
    total = 0.0
    for x, y in batches(25, 512, epoch):
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item()
    return total / 25


@torch.no_grad()
def test(net):
    net.eval()
    hits = sum((net(x).argmax(1) == y).sum().item() for x, y in batches(4, 512, 1000))
    return hits / (4 * 512)


torch.manual_seed(0)
network = build()
sgd = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
for epoch_number in range(5):
    mean_loss = train_epoch(network, sgd, epoch_number)
    print(f"epoch {epoch_number}: loss {mean_loss:.3f}, test accuracy {test(network):.3f}")
