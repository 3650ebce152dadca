"""A custom function that saves what it needs in the proper way."""

import torch
from torch import nn


class ScatterSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, src, index, size):
        ctx.save_for_backward(index)
        return src.new_zeros(size, src.shape[1]).index_add_(0, index, src)

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return grad[index], None, None


mlp = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
head = nn.Linear(8, 1)
opt = torch.optim.Adam([*mlp.parameters(), *head.parameters()])
for _ in range(40):
    nodes, edges = torch.randn(30, 8), torch.randint(30, (2, 90))
    agg = ScatterSum.apply(mlp(nodes[edges[0]]), edges[1], 30)
    loss = head(agg).mean().pow(2)
    opt.zero_grad()
    loss.backward()
    opt.step()
