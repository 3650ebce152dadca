from collections import OrderedDict
from typing import Callable, Mapping

import torch
from torch import Tensor, nn
import torch.nn.functional as F


class LossBalancer:
    """Divides each task's loss by its running magnitude so that no task dominates."""

    def __init__(self, momentum: float = 0.95):
        self.momentum = momentum
        self.scale: "OrderedDict[str, Tensor]" = OrderedDict()

    def observe(self, name: str, value: Tensor) -> None:
        if name not in self.scale:
            self.scale[name] = value.detach()
            return
        self.scale[name] = self.momentum * self.scale[name] + (1 - self.momentum) * value  # !MG101 LossBalancer.scale

    def combine(self, losses: Mapping[str, Tensor]) -> Tensor:
        for name, value in losses.items():
            self.observe(name, value)
        # the weights are constants for the gradient
        return sum(v / self.scale[n].detach().clamp(min=1e-6) for n, v in losses.items())


class SharedTrunk(nn.Module):
    def __init__(self, d: int = 64, h: int = 256):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU())
        self.heads = nn.ModuleDict(
            {"toxicity": nn.Linear(h, 2), "solubility": nn.Linear(h, 1), "logp": nn.Linear(h, 1)}
        )

    def forward(self, x: Tensor):
        z = self.trunk(x)
        return {k: head(z) for k, head in self.heads.items()}


TASKS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "toxicity": lambda o, t: F.cross_entropy(o, (t > 0).long()),
    "solubility": lambda o, t: F.huber_loss(o.squeeze(1), t),
    "logp": lambda o, t: F.mse_loss(o.squeeze(1), 10 * t),
}


def molecules(n: int):
    fp = (torch.rand(n, 64) > 0.8).float()
    targets = {"toxicity": fp[:, 0] - fp[:, 1], "solubility": fp.sum(1) / 64, "logp": fp[:, 3] - fp[:, 9]}
    return fp, targets


def iteration(net, balancer, opt, n) -> float:
    opt.zero_grad()
    fp, targets = molecules(n)
    out = net(fp)
    losses = {k: fn(out[k], targets[k]) for k, fn in TASKS.items()}
    total = balancer.combine(losses)
    total.backward()
    opt.step()
    return total.item()


def main() -> None:
    torch.manual_seed(21)
    net = SharedTrunk()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    balancer = LossBalancer()
    for it in range(60):
        total = iteration(net, balancer, opt, 256)
        if it % 20 == 0:
            print(it, f"{total:.3f}", {k: round(v.item(), 3) for k, v in balancer.scale.items()})


if __name__ == "__main__":
    main()
