"""Adversarial feature learning: both backward calls retain the graph, the second for nobody."""

import torch
import torch.nn as nn


def build(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers[:-1])


encoder, classifier, adversary = build(24, 192, 192), build(192, 5), build(192, 2)
opt_main = torch.optim.Adam([*encoder.parameters(), *classifier.parameters()], lr=1e-3)
opt_adv = torch.optim.Adam(adversary.parameters(), lr=1e-3)
for it in range(25):
    x, y, s = torch.randn(96, 24), torch.randint(5, (96,)), torch.randint(2, (96,))
    z = encoder(x)
    task = nn.functional.cross_entropy(classifier(z), y)
    leak = nn.functional.cross_entropy(adversary(z), s)
    opt_adv.zero_grad()
    torch.autograd.backward([leak], retain_graph=True, inputs=list(adversary.parameters()))
    opt_main.zero_grad()
    torch.autograd.backward([task], retain_graph=True)  # !MG103 task
    opt_adv.step()
    opt_main.step()
