"""Curriculum learning: remember which sample ids came in which batch (with loader workers)."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class SyntheticMR(Dataset):
    """8-channel slices + the id and a quality map"""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {
            "image": torch.randn(8, 40, 40, generator=g),
            "label": i % 3,
            "quality": torch.rand(64, 64, generator=g),
            "id": i,
        }


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 81, 3)
        )

    def forward(self, x):
        return self.f(x)


class Curriculum:
    def __init__(self):
        self.history = []

    def observe(self, ids, quality, loss):
        self.history.append({"ids": ids, "quality": quality, "loss": loss})  # !MG704 Curriculum.history

    def hardest(self, k=3):
        ranked = sorted(self.history, key=lambda h: -h["loss"])[:k]
        return [(int(h["ids"][0]), round(h["quality"].mean().item(), 3)) for h in ranked]


def main():
    torch.manual_seed(0)
    loader = DataLoader(SyntheticMR(50 * 32), batch_size=32, shuffle=True, num_workers=1, prefetch_factor=2)
    net, cur = Net(), Curriculum()
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    for i, batch in enumerate(loader):
        opt.zero_grad()
        loss = crit(net(batch["image"]), batch["label"])
        loss.backward()
        opt.step()
        cur.observe(batch["id"], batch["quality"], loss.item())
        if i % 10 == 9:
            print(i + 1, f"{loss.item():.3f}", "hardest", cur.hardest())


if __name__ == "__main__":
    main()
