# Weights go to an engine that generates as a state dict, which ends with the function that sends them.
# device: virtual:128MiB
import torch
from torch import nn


class Sync:
    """Sends the trained weights to the engine that generates."""

    def __init__(self, model, engine):
        self.model, self.engine = model, engine

    def sync(self):
        sent = {name: value.to(torch.float32, copy=True) for name, value in self.model.state_dict().items()} 
        self.engine.load_state_dict(sent)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024))
engine = nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)).requires_grad_(False)
syncing = Sync(model, engine)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    syncing.sync()
    with torch.no_grad():
        x = engine(torch.randn(64, 1024))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
