# verl-like metrics: append_to_dict with .item() and small detached tensors.
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 2000))
optimizer = torch.optim.AdamW(policy.parameters())


def append_to_dict(data, new):
    for key, value in new.items():
        data.setdefault(key, []).append(value)


def update_policy(batch):
    metrics = {}
    for x, a in batch:
        logp = policy(x).log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        loss = -logp.gather(1, a[:, None]).mean() - 0.01 * entropy.mean()
        (loss / len(batch)).backward()
        append_to_dict(metrics, {"entropy": entropy.mean().item(), "loss": loss.detach(), "argmax": logp.detach().argmax(-1)})
    optimizer.step()
    optimizer.zero_grad()
    return {key: torch.as_tensor([float(torch.as_tensor(v).float().mean()) for v in vs]).mean().item() for key, vs in metrics.items()}


for step in range(5):
    print(step, update_policy([(torch.randn(64, 64), torch.randint(0, 2000, (64,))) for _ in range(8)]))
