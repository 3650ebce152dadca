"""Retells temporal-ensembling code on GitHub: "runs out of memory between the epochs, not in them".

Semi-supervised tagging of plankton clips with 400 tags. The targets of the consistency term are an average over the
epochs of what the network said of every clip.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Ensemble:
    clips: int
    tags: int
    alpha: float = 0.6
    epoch: int = 0
    Z: torch.Tensor = field(init=False)
    said: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.Z = torch.zeros(self.clips, self.tags)
        self.said = torch.zeros(self.clips, self.tags)

    def target(self, rows):
        return self.Z[rows] / max(1 - self.alpha**self.epoch, 1e-6)

    def note(self, rows, prob):
        self.said[rows] = prob

    def close_epoch(self):
        self.Z = self.alpha * self.Z + (1 - self.alpha) * self.said  # !MG305 Ensemble.Z
        self.epoch += 1


class Tagger(nn.Module):
    def __init__(self, bands, tags, width=128):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(bands, width), nn.ReLU(), nn.Dropout(0.3), nn.Linear(width, tags))

    def forward(self, x):
        return self.net(x + 0.05 * torch.randn_like(x))


def fit_rows(net, opt, ens, clips, labels, labelled, rows, weight):
    opt.zero_grad()
    logits = net(clips[rows])
    prob = logits.softmax(1)
    known = labelled[rows]
    loss = weight * F.mse_loss(prob, ens.target(rows)) * prob.shape[1]
    if known.any():
        loss = loss + F.cross_entropy(logits[known], labels[rows][known])
    loss.backward()
    opt.step()
    ens.note(rows, prob.detach())
    return loss.item()


def main():
    torch.manual_seed(21)
    n, bands, tags, size = 24_000, 32, 400, 1000
    centre = torch.randn(tags, bands)
    labels = torch.randint(0, tags, (n,))
    clips = centre[labels] + 0.7 * torch.randn(n, bands)
    labelled = torch.rand(n) < 0.2
    net = Tagger(bands, tags)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    ens = Ensemble(n, tags)
    for epoch in range(6):
        total = 0.0
        for rows in torch.randperm(n).split(size):
            total += fit_rows(net, opt, ens, clips, labels, labelled, rows, min(1.0, epoch / 4))
        ens.close_epoch()
        hit = (ens.Z.argmax(1) == labels).float().mean().item()
        print(f"epoch {epoch} loss {total / (n // size):.4f} ensemble accuracy {hit:.3f}")


if __name__ == "__main__":
    main()
