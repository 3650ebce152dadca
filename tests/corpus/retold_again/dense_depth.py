"""Dense depth prediction at full resolution with a light decoder."""

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, H, W, BINS = 2, 64, 96, 80
ITERATIONS = 60


class DepthNet(nn.Module):
    """Predicts a distribution over depth bins for every pixel."""

    def __init__(self, bins=BINS):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4, padding=1), nn.ReLU())
        self.head = nn.Conv2d(8, bins, 1)

    def forward(self, x):
        coarse = self.head(self.stem(x))
        return F.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False)


def sample():
    rgb = torch.rand(BATCH, 3, H, W)
    depth = (rgb.mean(1) * BINS).long().clamp(0, BINS - 1)
    return rgb, depth


def abs_rel(probs, depth):
    bins = torch.arange(BINS, dtype=torch.float32)
    expected = torch.einsum("bdhw,d->bhw", probs, bins)
    return ((expected - depth).abs() / (depth + 1)).mean().item()


def train_step(model, optimizer, rgb, depth):
    optimizer.zero_grad()
    volume = model(rgb)
    loss = F.cross_entropy(volume, depth)
    loss.backward()
    optimizer.step()
    return loss.item(), volume.detach().softmax(dim=1)


def main():
    torch.manual_seed(4)
    model = DepthNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    best = float("inf")
    for it in range(ITERATIONS):
        rgb, depth = sample()
        loss, probs = train_step(model, optimizer, rgb, depth)  # !MG303 probs
        rel = abs_rel(probs, depth)
        best = min(best, rel)
        if it % 10 == 9:
            print(f"it {it + 1} loss {loss:.3f} abs rel {rel:.3f} best {best:.3f}")


if __name__ == "__main__":
    main()
