# device: virtual:256MiB
# Hooks offload saved activations under a number, and take them out where backward reads them.
import torch
from torch import nn


class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        self.tracker = {}
        self.next_id = 0
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        number = self.next_id
        self.next_id += 1
        self.tracker[number] = tensor if isinstance(tensor, nn.Parameter) else tensor.detach().clone()
        return number

    def unpack(self, number):
        return self.tracker.pop(number)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
offload = OffloadActivations()
for step in range(12):
    for micro in range(4):
        x = torch.randn(128, 256)
        with offload:
            loss = (model(x) - x).square().mean() / 4
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
