"""A CUDA graph for each length that comes along, as inference servers do, in a training loop."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
graphs = {}
with torch.no_grad():
    net(torch.zeros(1, 64, device="cuda"))  # what cuBLAS makes at its first call cannot be captured
for step in range(60):
    length = 500 + 37 * step
    if length not in graphs:
        static = torch.zeros(length, 64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):  # !MG405 -
            out = net(static)
        graphs[length] = (graph, static, out)
    graphs[length][0].replay()
    loss = net(torch.randn(32, 64, device="cuda")).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
