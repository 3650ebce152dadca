# device: virtual:256MiB
# A reference model is sharded as a whole: its forward gathers all weights, and no backward comes to free them.
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore


class Trainer:
    def __init__(self, mesh):
        self.policy, self.reference = self.make(), self.make().requires_grad_(False)
        for layer in self.policy:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.policy, mesh=mesh)
        fully_shard(self.reference, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.01)

    def make(self):
        return nn.Sequential(*(nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(6)))

    @torch.no_grad()
    def wanted(self, x):
        return self.reference(x)  # !MG308 Trainer.reference

    def step(self):
        for x in torch.randn(64, 1024).chunk(2):
            ((self.policy(x) - self.wanted(x)).square().mean() / 2).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


torch.manual_seed(0)
dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
trainer = Trainer(init_device_mesh("cpu", (4,)))
for _ in range(10):
    trainer.step()
dist.destroy_process_group()
