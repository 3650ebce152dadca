"""Feature extraction with a one-line hook, left on during training."""

import torch
import torch.nn as nn

activations = []
cnn = nn.Sequential(
    nn.Conv2d(1, 4, 3),
    nn.ReLU(),
    nn.Conv2d(4, 8, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
)
cnn[2].register_forward_hook(lambda m, i, o: activations.append(o))  # !MG101 activations
opt = torch.optim.SGD(cnn.parameters(), lr=0.05)
for _ in range(25):
    img, lbl = torch.randn(4, 1, 12, 12), torch.randint(10, (4,))
    loss = nn.CrossEntropyLoss()(cnn(img), lbl)
    opt.zero_grad()
    loss.backward()
    opt.step()
