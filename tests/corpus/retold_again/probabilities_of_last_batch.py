"""Few-shot / segmentation loop where tensors of one batch live on through the whole next batch since the loop variables
are only rebound at the end of it; the repository's fix was "proto = None; logits = None; loss = None" at the end of the loop.
https://github.com/yinboc/prototypical-network-pytorch/issues/5 , https://discuss.pytorch.org/t/calling-loss-backward-reduce-memory-usage/2735
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class SegNet(nn.Module):
    def __init__(self, classes=54):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU())
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x):
        return F.interpolate(self.head(self.down(x)), scale_factor=2)


class ConfusionMatrix:
    def __init__(self, n):
        self.n, self.mat = n, torch.zeros(n, n, dtype=torch.long)

    def update(self, pred, y):
        k = (y.cpu().clamp(0, self.n - 1) * self.n + pred.cpu().clamp(0, self.n - 1)).flatten()
        self.mat += torch.bincount(k, minlength=self.n**2)[: self.n**2].view(self.n, self.n)

    @property
    def accuracy(self):
        return self.mat.diag().sum().item() / max(1, self.mat.sum().item())


def main(steps=30, classes=54):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = SegNet(classes).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    confusion = ConfusionMatrix(classes)
    for it in range(steps):
        x = torch.rand(6, 3, 160, 160).to(device)
        y = torch.randint(0, classes, (6, 160, 160)).to(device)
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        with torch.no_grad():
            probs = model(x).softmax(1)  # !MG303 probs
        confusion.update(probs.argmax(1), y)
        if it % 10 == 0:
            print(f"{it} loss {loss.item():.3f} acc {confusion.accuracy:.3f} conf {probs.amax(1).mean().item():.3f}")


if __name__ == "__main__":
    main()
