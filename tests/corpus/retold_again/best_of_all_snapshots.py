"""The three best weights are wanted; the list is sorted and never cut."""

import copy
import torch
from torch import nn


class TopK:
    def __init__(self, k):
        self.k = k
        self.kept = []

    def offer(self, score, model):
        self.kept.append((score, copy.deepcopy(model.state_dict())))  # !MG308 TopK.kept
        self.kept.sort(key=lambda item: item[0])
        return self.kept[: self.k]


def make(device):
    return nn.Sequential(nn.Linear(200, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 1)).to(device)


def validate(model, x, y):
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), y).item()


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model, keeper = make(device), TopK(3)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    vx = torch.randn(64, 200, device=device)
    vy = vx.sum(1, keepdim=True)
    for epoch in range(25):
        for _ in range(8):
            x = torch.randn(64, 200, device=device)
            loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
        best = keeper.offer(validate(model, vx, vy), model)
    print(len(best), best[0][0])


main()
