"""Grad-CAM maps of a trained network in eval mode, hooks removed afterwards."""

import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
model = nn.Sequential(net, head)
opt = torch.optim.Adam(model.parameters())
for _ in range(15):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 16, 16)), torch.randint(4, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

model.eval()
maps = []
for image in torch.randn(12, 1, 3, 16, 16):
    store = {}
    h1 = net[2].register_forward_hook(lambda m, i, o: store.update(act=o))
    h2 = net[2].register_full_backward_hook(lambda m, gi, go: store.update(grad=go[0]))
    scores = model(image)
    model.zero_grad()
    scores[0, scores.argmax()].backward()
    weights = store["grad"].mean((2, 3), keepdim=True)
    maps.append(torch.relu((weights * store["act"]).sum(1)).detach())
    h1.remove()
    h2.remove()
