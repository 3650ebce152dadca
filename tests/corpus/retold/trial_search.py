import random

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class SomeNet(nn.Module):
    def __init__(self, width, slope):
        super().__init__()
        self.slope = slope
        self.fc1 = nn.Linear(1024, width)
        self.fc2 = nn.Linear(width, width)
        self.fc3 = nn.Linear(width, 10)
        self.act = lambda x: F.leaky_relu(x, self.slope)  # !MG306 SomeNet.act

    def forward(self, x):
        x = self.act(self.fc1(x))
        x = self.act(self.fc2(x))
        return self.fc3(x)


def run_trial(cfg, x, y, steps=5):
    net = SomeNet(cfg["width"], cfg["slope"]).to(device)
    optim = torch.optim.SGD(net.parameters(), lr=cfg["lr"])
    n = len(x) // steps
    for i in range(steps):
        xb, yb = x[i * n : (i + 1) * n], y[i * n : (i + 1) * n]
        optim.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(xb), yb)
        loss.backward()
        optim.step()
    with torch.no_grad():
        acc = (net(x).argmax(1) == y).float().mean().item()
    return acc


def main():
    torch.manual_seed(3)
    random.seed(3)
    x = torch.randn(320, 1024, device=device)
    y = torch.randint(0, 10, (320,), device=device)
    best = (0.0, None)
    for trial in range(16):
        cfg = {
            "width": random.choice([512, 640, 768]),
            "slope": random.uniform(0.01, 0.3),
            "lr": 10 ** random.uniform(-3, -1),
        }
        acc = run_trial(cfg, x, y)
        if acc > best[0]:
            best = (acc, cfg)
        print(f"trial {trial:2d} acc {acc:.3f} width {cfg['width']}")
    print("best", best)


if __name__ == "__main__":
    main()
