# device: virtual:256MiB
# Activations are put aside in a window of buffers by saved-tensor hooks; unpacking reads them, and nothing lets them go until the step.
import torch
from torch import nn


class OffloadActivations(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        self.tracker, self.next_id = {}, 0
        super().__init__(self.pack, self.unpack)

    def pack(self, t):
        self.next_id += 1
        self.tracker[self.next_id] = (t.clone(), t.requires_grad)  # !MG106 OffloadActivations.tracker
        return self.next_id

    def unpack(self, number):
        return self.tracker[number][0]

    def reset(self):
        self.tracker.clear()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
offload = OffloadActivations()
for step in range(6):
    for micro in range(8):
        with offload:
            loss = nn.functional.cross_entropy(model(torch.randn(256, 256)), torch.randint(0, 10, (256,))) / 8
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    offload.reset()
    print("step", step, flush=True)
