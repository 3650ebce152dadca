"""Roll-outs have buffers in a memory pool of their own, which keeps them while the policy is updated."""
# runs out of memory
# !MG401 -

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction(2**30 / torch.cuda.get_device_properties(0).total_memory)
policy = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
pool = torch.cuda.MemPool()


def roll_out():
    with torch.cuda.use_mem_pool(pool):
        caches = [torch.empty(192 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    return len(caches)


for step in range(6):
    print(roll_out())
    out = policy(torch.randn(8000 if step > 3 else 256, 1024, device="cuda"))
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
