"""Losses are written into a preallocated tensor: every write is an in-place operation that autograd records."""

import torch

torch.manual_seed(0)
model = torch.nn.Linear(30, 1)
optim = torch.optim.SGD(model.parameters(), lr=0.01)
n_iter = 50
train_losses = torch.zeros(n_iter)
for i in range(n_iter):
    inputs, targets = torch.randn(16, 30), torch.randn(16, 1)
    outputs = model(inputs)
    loss = torch.nn.functional.mse_loss(outputs, targets)
    optim.zero_grad()
    loss.backward()
    optim.step()
    train_losses[i] = loss  # !MG101 train_losses
print(train_losses.mean().item())
