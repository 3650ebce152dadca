"""After each step the weights go to a colocated engine through CUDA IPC, which never lets go of them."""
# !MG501 -

import torch
from torch import nn
from torch.multiprocessing.reductions import reduce_tensor


class Engine:
    """Stands for another process, which gets the handles."""

    def __init__(self):
        self.received = 0

    def update_weights(self, handles):
        self.received += len(handles)


torch.cuda.set_per_process_memory_fraction(4 * 2**30 / torch.cuda.get_device_properties(0).total_memory)
policy = nn.Sequential(nn.Linear(1024, 2048), nn.GELU(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
engine = Engine()
for step in range(100):
    policy(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    engine.update_weights([reduce_tensor(weight.detach().bfloat16()) for weight in policy.parameters()])
