"""A logger that buffers rows for a CSV and flushes at the end; what it is given are live tensors."""

import csv
import io

import torch
from torch import nn


class CSVLogger:
    def __init__(self, every=1000):
        self._rows = []
        self.every = every

    def log(self, step, **values):
        self._rows.append({"step": step, **values})  # !MG101 CSVLogger._rows
        if len(self._rows) >= self.every:
            self.flush()

    def flush(self):
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(self._rows[0]))
        writer.writeheader()
        for row in self._rows:
            writer.writerow({k: float(v) for k, v in row.items()})
        self._rows.clear()
        return out.getvalue()


def accuracy(out, y):
    return (out.argmax(-1) == y).float().mean()


def train(model, optimizer, logger, steps):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(steps):
        x, y = torch.randn(64, 128), torch.randint(0, 10, (64,))
        out = model(x)
        loss = criterion(out, y)
        reg = sum(p.pow(2).sum() for p in model.parameters()) * 1e-5
        optimizer.zero_grad()
        (loss + reg).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        logger.log(step, loss=loss, reg=reg, acc=accuracy(out, y))


if __name__ == "__main__":
    net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 10))
    log = CSVLogger()
    train(net, torch.optim.AdamW(net.parameters(), 1e-3), log, 50)
    print(len(log.flush()))
