"""A numpy object array takes anything, tensors with history too."""

import numpy as np
import torch

EPOCHS, STEPS = 2, 16
log = np.empty((EPOCHS, STEPS), dtype=object)
lin = torch.nn.Linear(7, 7)
sgd = torch.optim.SGD(lin.parameters(), lr=1e-2)
for e in range(EPOCHS):
    for s in range(STEPS):
        x = torch.randn(5, 7)
        loss = (lin(x) - x).abs().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        log[e, s] = loss  # !MG101 log
