"""asappresearch/sru, https://github.com/asappresearch/sru/pull/171 (and https://github.com/pytorch/pytorch/issues/25340) : the
custom op stores intermediate tensors, among them its own output, as attributes of ctx instead of with save_for_backward;
the contexts are not freed and memory usage grows out of control.
"""

import torch
from torch import nn


class SRUCompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, forget):
        f = torch.sigmoid(forget)
        c = f * u
        ctx.save_for_backward(u)
        ctx.f = f
        ctx.c = c  # !MG105 SRUCompute ctx.c
        return c

    @staticmethod
    def backward(ctx, grad):
        (u,) = ctx.saved_tensors
        f = ctx.f
        return grad * f, grad * u * f * (1 - f) + 0.0 * ctx.c


class SRUCell(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.proj = nn.Linear(n, 2 * n)

    def forward(self, x):
        u, forget = self.proj(x).chunk(2, dim=-1)
        return SRUCompute.apply(u, forget)


class Tagger(nn.Module):
    def __init__(self, n=96):
        super().__init__()
        self.emb = nn.Embedding(500, n)
        self.cell = SRUCell(n)
        self.out = nn.Linear(n, 12)

    def forward(self, tokens):
        return self.out(self.cell(self.emb(tokens)))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Tagger().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(60):
        tokens = torch.randint(0, 500, (40, 64)).to(device)
        tags = torch.randint(0, 12, (40 * 64,)).to(device)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tags)
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
