"""Supervised contrastive embedding with exponentially averaged class prototypes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, DIM, BATCH = 10, 64, 96


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(4, 32, 5, 2, 2),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, 2, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(256, DIM),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class PrototypeLoss(nn.Module):
    def __init__(self, momentum=0.95, temperature=0.2):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.prototypes = F.normalize(torch.randn(CLASSES, DIM), dim=1)

    def update(self, z, y):
        onehot = F.one_hot(y, CLASSES).float()
        means = onehot.t() @ z / onehot.sum(0).clamp(min=1).unsqueeze(1)
        self.prototypes = self.momentum * self.prototypes + (1 - self.momentum) * means  # !MG102 PrototypeLoss.prototypes

    def forward(self, z, y):
        protos = F.normalize(self.prototypes.detach(), dim=1)
        loss = F.cross_entropy(z @ protos.t() / self.temperature, y)
        self.update(z, y)
        return loss

    def classify(self, z):
        return (z @ F.normalize(self.prototypes, dim=1).t()).argmax(1)


def signals(n, base):
    y = torch.randint(CLASSES, (n,))
    shift = int(torch.randint(8, ()))
    return base[y].roll(shift, -1) + 0.7 * torch.randn(n, 4, 64), y


def train_step(model, criterion, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def evaluate(model, criterion, base, batches=5):
    model.eval()
    hits = 0.0
    with torch.no_grad():
        for _ in range(batches):
            x, y = signals(200, base)
            hits += (criterion.classify(model(x)) == y).float().mean().item()
    model.train()
    return hits / batches


def main():
    torch.manual_seed(0)
    base = torch.randn(CLASSES, 4, 64)
    model, criterion = Embedder(), PrototypeLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        losses = [train_step(model, criterion, optimizer, *signals(BATCH, base)) for _ in range(60)]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f} accuracy {evaluate(model, criterion, base):.3f}")


if __name__ == "__main__":
    main()
