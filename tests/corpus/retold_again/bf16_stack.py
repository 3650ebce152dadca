"""Retells a pull request on mixed precision: "moved autocast out of the loop, to enter it once".

Embedding recipes for a similar-dish search, in bfloat16; resources of a run hang on an ExitStack.
"""

import contextlib

import torch
import torch.nn.functional as F
from torch import nn


class DishEncoder(nn.Module):
    def __init__(self, words=2000, width=768, dim=128):
        super().__init__()
        self.bag = nn.EmbeddingBag(words, width // 4)
        self.lift = nn.Linear(width // 4, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4))
        self.out = nn.Linear(width, dim)

    def forward(self, ids):
        h = self.lift(self.bag(ids))
        for block in self.blocks:
            h = h + block(h)
        return F.normalize(self.out(h).float(), dim=1)


class Run:
    """Opens what a run needs, and closes it in the end."""

    def __init__(self, seed, device="cpu", dtype=torch.bfloat16):
        self.seed, self.device, self.dtype = seed, device, dtype
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        torch.manual_seed(self.seed)
        self.stack.callback(lambda: print(f"run with seed {self.seed} closed"))
        self.stack.enter_context(torch.autocast(self.device, dtype=self.dtype))  # !MG311 -
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)


def pairs(n, size, g):
    """Two shopping lists of the same dish: most words in common."""
    for _ in range(n):
        dish = torch.randint(0, 1900, (size, 1), generator=g)
        yield tuple(dish + torch.randint(0, 60, (size, 12), generator=g) for _ in range(2))


def info_nce(a, b, heat=0.07):
    logits = a @ b.t() / heat
    return F.cross_entropy(logits.float(), torch.arange(len(a)))


def step(net, opt, left, right):
    opt.zero_grad()
    loss = info_nce(net(left), net(right))
    loss.backward()
    opt.step()
    return loss.item()


def main():
    with Run(seed=17):
        net = DishEncoder()
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        g = torch.Generator().manual_seed(1)
        losses = [step(net, opt, *pair) for pair in pairs(40, 96, g)]
        for i in range(9, 40, 10):
            print(f"batch {i + 1:2d} loss {losses[i]:.4f}")


if __name__ == "__main__":
    main()
