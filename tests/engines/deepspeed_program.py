"""A rank of a training by DeepSpeed's engine on the CPU, with ZeRO stage 1."""

import deepspeed
import torch

import memguard

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # Gloo does it too; the other would be compiled here
deepspeed.init_distributed(dist_backend="gloo")
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
config = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
}
engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
with memguard.watch(engine, optimizer, device="cpu"):
    for _ in range(12):
        loss = engine(torch.randn(4, 16)).sum()
        engine.backward(loss)
        engine.step()
