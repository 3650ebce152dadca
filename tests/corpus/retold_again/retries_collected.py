"""A retry decorator collects the exceptions of failed attempts."""

import functools

import torch
from torch import nn

failures = []


def retry(times):
    def wrap(function):
        @functools.wraps(function)
        def inner(*args):
            for attempt in range(times):
                try:
                    return function(*args, attempt)
                except ArithmeticError as problem:
                    failures.append(problem)  # !MG307 failures
            return None

        return inner

    return wrap


model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)


@retry(2)
def train_step(x, y, attempt):
    out = model(x * 0.5**attempt)
    loss = nn.functional.mse_loss(out, y)
    if attempt == 0 and loss > 0.9:
        raise FloatingPointError(f"loss {loss.item()} too large")
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


for _ in range(40):
    x = torch.randn(200, 100)
    train_step(x, x.mean(1, keepdim=True) * 10)
