"""A stateful speech model is run over an endless stream to warm up its state; nobody cuts the state's history."""

import torch
from torch import nn


class Streamer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(80, 128, 2, batch_first=True)
        self.head = nn.Linear(128, 40)
        self.state = None

    def forward(self, chunk):
        out, self.state = self.rnn(chunk, self.state)  # !MG102 Streamer.state
        return self.head(out)


def sgd(params, lr):
    for p in params:
        if p.grad is not None:
            p.data.add_(p.grad, alpha=-lr)
            p.grad = None


model = Streamer()
criterion = nn.CrossEntropyLoss()
running = []
for step in range(24):
    logits = model(torch.randn(8, 20, 80))
    target = torch.randint(0, 40, (8, 20))
    loss = criterion(logits.flatten(0, 1), target.flatten())
    loss.backward(retain_graph=True)  # !MG103 Streamer.state
    sgd(model.parameters(), 0.01)
    running.append(loss.item())
print(sum(running) / len(running))
