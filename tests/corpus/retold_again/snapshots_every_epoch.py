"""The state of the best model was held in GPU memory during the training; it was moved to disk because of the
out-of-memory errors (https://github.com/facebookresearch/pytext/pull/204). This script keeps the weights of all epochs
for a plot of the path through weight space."""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, inputs=100, classes=5):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(inputs, 1500), nn.ReLU(), nn.Linear(1500, 1200), nn.ReLU())
        self.out = nn.Linear(1200, classes)

    def forward(self, x):
        return self.out(self.hidden(x))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(600, 100, device=device), torch.randint(0, 5, (600,), device=device)

checkpoints = {}
for epoch in range(26):
    for i in range(3):
        xb, yb = x[i * 200 : (i + 1) * 200], y[i * 200 : (i + 1) * 200]
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    checkpoints[epoch] = {k: v.detach().clone() for k, v in model.state_dict().items()}  # !MG308 checkpoints

first, last = checkpoints[0], checkpoints[25]
print(sum((last[k] - first[k]).norm().item() for k in last))
