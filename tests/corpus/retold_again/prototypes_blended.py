"""Metric learning: embedding network pulled towards moving class prototypes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(classes=200, dim=128, batch=128, steps=240, momentum=0.9, temperature=0.1, lr=1e-3)


def make_data(classes, n=4096, dim_in=64):
    labels = torch.randint(0, classes, (n,))
    anchors = torch.randn(classes, dim_in)
    return anchors[labels] + 0.5 * torch.randn(n, dim_in), labels


class Embedder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, dim))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def class_means(emb, labels, classes):
    onehot = F.one_hot(labels, classes).to(emb.dtype)
    return onehot.t() @ emb / onehot.sum(0).clamp(min=1).unsqueeze(1)


def train(cfg):
    x, y = make_data(cfg["classes"])
    model = Embedder(cfg["dim"])
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    prototypes = F.normalize(torch.randn(cfg["classes"], cfg["dim"]), dim=1)
    running = 0.0
    for step in range(1, cfg["steps"] + 1):
        idx = torch.randint(0, len(x), (cfg["batch"],))
        emb = model(x[idx])
        logits = emb @ prototypes.detach().t() / cfg["temperature"]
        loss = F.cross_entropy(logits, y[idx])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        means = class_means(emb, y[idx], cfg["classes"])
        mixed = cfg["momentum"] * prototypes + (1 - cfg["momentum"]) * means
        prototypes = F.normalize(mixed, dim=1)  # !MG102 prototypes
        running += loss.item()
        if step % 40 == 0:
            print(f"step {step}: loss {running / 40:.4f}")
            running = 0.0
    return model, prototypes.detach()


if __name__ == "__main__":
    torch.manual_seed(0)
    model, prototypes = train(CFG)
    print("prototype norm", prototypes.norm(dim=1).mean().item())
