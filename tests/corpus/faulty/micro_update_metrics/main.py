# device: virtual:256MiB
# RL: the actor's entropies of all micro-batches, with their graphs, are collected in the metrics of an update.
import torch
from actor import DataParallelPPOActor
from torch import nn

torch.manual_seed(0)
V = 1500
net = nn.Sequential(nn.Embedding(V, 96), nn.Linear(96, 192), nn.GELU(), nn.Linear(192, V))
actor = DataParallelPPOActor(net, torch.optim.AdamW(net.parameters(), lr=1e-4))
for step in range(6):
    ids = torch.randint(0, V, (32, 65))
    data = {"ids": ids, "old": actor.compute_log_prob(ids), "adv": torch.randn(32, 64)}
    m = actor.update_policy(data)
    print("step", step, round(sum(e.mean().item() for e in m["actor/entropy"]), 3), flush=True)
