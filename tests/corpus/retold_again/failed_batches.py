# device: virtual:512MiB
"""Bad samples raise inside the forward; the exceptions are kept for a report at the end of the epoch."""

import torch
from torch import nn


class Checked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(256, 1024), nn.Linear(1024, 10)

    def forward(self, x):
        h = torch.relu(self.a(x))
        scale = h.abs().amax()
        if scale > 1e3:
            raise ValueError(f"activations exploded: {float(scale):.0f}")
        return self.b(h)


def train_epoch(model, optimizer, batches):
    failures = []
    for i in range(batches):
        x, y = torch.randn(512, 256), torch.randint(0, 10, (512,))
        if i % 2:
            x = x * 1e5
        try:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except ValueError as error:
            failures.append((i, error))  # !MG307 failures
    return failures


model = Checked()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(2):
    failed = train_epoch(model, optimizer, 40)
    print(epoch, len(failed), "batches skipped")
