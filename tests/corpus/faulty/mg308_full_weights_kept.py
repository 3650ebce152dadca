# device: virtual:256MiB
# The full weights of a sharded model are gathered for each evaluation, and a dictionary keeps them.
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (2,))
model = nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6)))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


class Exporter:
    def __init__(self, model):
        self.model = model
        self.full = {}

    def export(self):
        for name, parameter in self.model.named_parameters():
            self.full[name] = parameter.full_tensor().detach()  # !MG308 Exporter.full
        return sum(value.numel() for value in self.full.values())


exporter = Exporter(model)
for step in range(12):
    for micro in range(2):
        (model(torch.randn(32, 1024)).square().mean() / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
    exporter.export()
dist.destroy_process_group()
