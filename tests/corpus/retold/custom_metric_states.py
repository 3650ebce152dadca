"""A metric with update and compute, fed with logits that still have their graph."""

import torch
from torch import nn


class RunningAUC:
    """Collects scores, computes at the end of an epoch."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.scores, self.labels = [], []

    def update(self, preds, target):
        self.scores.append(torch.sigmoid(preds))  # !MG101 RunningAUC.scores
        self.labels.append(target)

    def compute(self):
        s, l = torch.cat(self.scores), torch.cat(self.labels)
        pos, neg = s[l == 1], s[l == 0]
        return (pos[:, None] > neg[None]).float().mean().item()


def fit(epochs=2):
    auc = RunningAUC()
    net = nn.Sequential(nn.Linear(9, 18), nn.Tanh(), nn.Linear(18, 1), nn.Flatten(0))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        auc.reset()
        for _ in range(20):
            x = torch.randn(12, 9)
            y = (x.mean(1) > 0).float()
            out = net(x)
            loss = loss_fn(out, y)
            auc.update(out, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(auc.compute())


fit()
