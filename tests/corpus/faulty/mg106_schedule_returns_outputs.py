# A schedule function runs forward and backward of each micro-batch and returns all outputs to its caller.
# device: virtual:1GiB
import torch
from torch import nn
from torch.nn import functional as F


def forward_backward(model, micro_batches, loss_fn):
    forward_data_store = []
    for x, y in micro_batches:
        logits, features = model(x)
        loss = loss_fn(logits, y) / len(micro_batches)
        loss.backward()
        forward_data_store.append((loss.detach(), features.softmax(-1)))  # !MG106 forward_data_store
    return forward_data_store


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU())
        self.head = nn.Linear(1024, 32)

    def forward(self, x):
        features = self.body(x)
        return self.head(features), features


torch.manual_seed(0)
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for iteration in range(4):
    micro_batches = [(torch.randn(256, 128), torch.randint(0, 32, (256,))) for _ in range(12)]
    store = forward_backward(model, micro_batches, F.cross_entropy)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(iteration, sum(loss.item() for loss, _ in store))
    del store
