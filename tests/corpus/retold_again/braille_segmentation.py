"""Pavement classification with three running sums, of which none is a number."""

import torch
import torch.nn as nn
import torch.optim as optim

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 7))
mse_loss, ce_loss = nn.MSELoss(), nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

for epoch in range(2):
    running_loss = 0.0
    running_mse = 0.0
    running_ce = 0.0
    for i in range(25):
        images = torch.rand(4, 3, 24, 24)
        direction = torch.rand(4, 2)
        colour = torch.randint(0, 5, (4,))
        optimizer.zero_grad()
        prediction = net(images)
        mse = mse_loss(prediction[:, :2], direction)
        ce = ce_loss(prediction[:, 2:], colour)
        loss = mse + ce
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        running_mse += mse  # !MG101 running_mse
        running_ce += ce  # !MG101 running_ce
    print(f"[{epoch}] loss {running_loss / 25:.3f} mse {running_mse / 25:.3f} ce {running_ce / 25:.3f}")
