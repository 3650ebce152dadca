"""Linear regression without any Module: parameters are plain tensors, an optimizer steps them."""

import torch

true_w, true_b = torch.tensor([2.0, -3.4]), 4.2
X = torch.randn(1000, 2)
y = X @ true_w + true_b + 0.01 * torch.randn(1000)

w = torch.zeros(2, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
trainer = torch.optim.SGD([w, b], lr=0.03)

for epoch in range(2):
    total_loss = 0
    for idx in torch.randperm(1000).split(50):
        loss = ((X[idx] @ w + b - y[idx]) ** 2 / 2).mean()
        trainer.zero_grad()
        loss.backward()
        trainer.step()
        total_loss += loss  # !MG101 total_loss
    print(epoch, float(total_loss) / 20)
