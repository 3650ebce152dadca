"""A logger that promises to write later."""

import torch
from torch import nn


class ScalarLog:
    """Buffers scalars; flush() writes them all at the end of the run."""

    def __init__(self):
        self.rows = []

    def add_scalar(self, tag, value, step):
        self.rows.append((tag, step, value))  # !MG101 ScalarLog.rows

    def flush(self):
        return {tag: float(value) for tag, _, value in self.rows}


def fit(net, data, writer, lr=1e-2):
    opt = torch.optim.RMSprop(net.parameters(), lr=lr)
    for step, (x, y) in enumerate(data):
        pred = net(x)
        loss = nn.functional.smooth_l1_loss(pred.squeeze(-1), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        writer.add_scalar("train/loss", loss, step)
        writer.add_scalar("train/lr", opt.param_groups[0]["lr"], step)


torch.manual_seed(0)
batches = [(torch.randn(8, 6), torch.randn(8)) for _ in range(32)]
writer = ScalarLog()
fit(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 1)), batches, writer)
print(writer.flush())
