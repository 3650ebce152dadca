import torch
from actor import Actor


class Metrics:
    def __init__(self):
        self.values = {}

    def record(self, name, value):
        self.values.setdefault(name, []).append(value)  # !MG106 Metrics.values

    def flush(self):
        done = {name: torch.stack([v.detach().mean() for v in values]).mean().item() for name, values in self.values.items()}
        self.values.clear()
        return done


torch.manual_seed(0)
actor, metrics = Actor(), Metrics()
for step in range(4):
    actor.update_policy(torch.randint(0, 2000, (24, 24)), metrics)
    print(step, metrics.flush())
