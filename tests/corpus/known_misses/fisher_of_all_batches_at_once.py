# MG101 by batch 42: the first task takes 40, its estimate is the next one.
# needs an allocator: its graphs are small beside the RAM.
# A known miss: no step comes, and only the function's text tells that one graph at a time would do.
"""Elastic weight consolidation over two tasks.

Retells Overcoming-Catastrophic-Forgetting issue 4: "While updating the fisher matrix my code says CUDA out of memory
due to log_liklihoods.append(output[:, target])". The graphs of all batches are alive until the end of the estimate;
a gradient per batch, summed, would do.
https://github.com/thuyngch/Overcoming-Catastrophic-Forgetting/issues/4
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import autograd

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 12, 3, padding=1)
        self.c2 = nn.Conv2d(12, 16, 3, padding=1, stride=2)
        self.fc = nn.Linear(16 * 14 * 14, 10)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        return self.fc(x.flatten(1))


class ElasticWeightConsolidation:
    def __init__(self, model, crit, lr=0.01, weight=1000.0):
        self.model, self.crit, self.weight = model, crit, weight
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        self.mean, self.fisher = {}, {}

    def _update_fisher_params(self, batches):
        log_likelihoods = []
        for inputs, target in batches:
            output = F.log_softmax(self.model(inputs.to(device)), dim=1)
            log_likelihoods.append(output.gather(1, target.to(device).unsqueeze(1)))  # !MG101 log_likelihoods
        log_likelihood = torch.cat(log_likelihoods).mean()
        grads = autograd.grad(log_likelihood, list(self.model.parameters()))
        for (name, _), g in zip(self.model.named_parameters(), grads):
            self.fisher[name] = g.detach() ** 2

    def register_ewc_params(self, batches):
        self.mean = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        self._update_fisher_params(batches)

    def penalty(self):
        if not self.fisher:
            return 0.0
        return (
            self.weight
            / 2
            * sum((self.fisher[n] * (p - self.mean[n]) ** 2).sum() for n, p in self.model.named_parameters())
        )

    def forward_backward_update(self, inputs, target):
        loss = self.crit(self.model(inputs), target) + self.penalty()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def task(seed, n=40, bs=64):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(n):
        yield torch.rand(bs, 1, 28, 28, generator=gen), torch.randint(0, 10, (bs,), generator=gen)


if __name__ == "__main__":
    ewc = ElasticWeightConsolidation(Net().to(device), nn.CrossEntropyLoss())
    for t in range(2):
        for x, y in task(t):
            last = ewc.forward_backward_update(x.to(device), y.to(device))
        print(f"task {t}: loss {last:.3f}")
        ewc.register_ewc_params(task(t))
