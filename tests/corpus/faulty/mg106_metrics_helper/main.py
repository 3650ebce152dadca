# Metrics of each micro-batch go through a helper in another file, entropy with its graph.
# device: virtual:1GiB
import torch
from metrics import append_to_dict, reduce_metrics
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 2000))
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4)


def update(batch):
    metrics = {}
    optimizer.zero_grad()
    for states, actions in batch:
        logp = policy(states).log_softmax(-1)
        loss = -logp.gather(1, actions[:, None]).mean()
        loss.backward()
        entropy = -(logp.exp() * logp).sum(-1)
        append_to_dict(metrics, {"actor/entropy": entropy, "actor/loss": loss.item()})
    optimizer.step()
    return reduce_metrics(metrics)


for step in range(4):
    print(step, update([(torch.randn(96, 64), torch.randint(0, 2000, (96,))) for _ in range(8)]))
