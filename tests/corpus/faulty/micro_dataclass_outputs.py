# A trainer's micro-batches come back as dataclasses with logits; the caller averages their losses after the step.
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class MicroResult:
    loss: torch.Tensor
    logits: torch.Tensor


class Engine:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 4000))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def run_micro_batch(self, x, y, scale):
        logits = self.model(x)
        probabilities = logits.softmax(-1)
        loss = nn.functional.nll_loss(probabilities.clamp_min(1e-9).log(), y) * scale
        loss.backward()
        return MicroResult(loss, probabilities * 2)

    def train_step(self, batch):
        results = []
        for x, y in batch:
            results.append(self.run_micro_batch(x, y, 1 / len(batch)))  # !MG106 results
        self.optimizer.step()
        self.optimizer.zero_grad()
        return sum(result.loss.item() for result in results)


torch.manual_seed(0)
engine = Engine()
for step in range(4):
    print(step, round(engine.train_step([(torch.randn(64, 64), torch.randint(0, 4000, (64,))) for _ in range(8)]), 3))
