"""Totals live in the argparse namespace that is handed around."""

import argparse

import torch
from torch import nn


def parse(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.01)
    return parser.parse_args(argv or [])


def train(args, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    args.totals = {"ce": 0, "l2": 0}
    for _ in range(args.steps):
        x, y = torch.randn(8, 10), torch.randint(4, (8,))
        h = model(x)
        ce, l2 = nn.functional.cross_entropy(h, y), h.pow(2).mean()
        optimizer.zero_grad()
        (ce + 0.01 * l2).backward()
        optimizer.step()
        args.totals["ce"] += ce  # !MG101 args.totals
        args.totals["l2"] += l2.item()
    return args


args = train(parse(), nn.Linear(10, 4))
print({k: float(v) / args.steps for k, v in args.totals.items()})
