"""Forum: "add_param_group in every task: memory goes up although only the newest prompt is trained" (continual learning).

Prompt learning for a stream of short tasks: each task gets prompts of its own, the optimizer is kept.
"""

# device: virtual:192MiB
# runs out of memory
# !MG504 -
import torch
from torch import nn
import torch.nn.functional as F

WIDTH, TOKENS, CLASSES, BATCH = 256, 512, 10, 4


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.TransformerEncoderLayer(WIDTH, 4, WIDTH, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.requires_grad_(False)
        self.head.requires_grad_(True)

    def forward(self, x, prompt):
        x = torch.cat([prompt.mean(0, keepdim=True).expand(len(x), -1, -1), x], 1)
        return self.head(self.body(x)[:, 0])


def task_batch(task, i):
    g = torch.Generator().manual_seed(1000 * task + i)
    y = torch.randint(CLASSES, (BATCH,), generator=g)
    return torch.randn(BATCH, 12, WIDTH, generator=g) + y.view(-1, 1, 1) * 0.3 + task * 0.01, y


class Learner:
    def __init__(self):
        self.net = Backbone()
        self.opt = torch.optim.Adam(self.net.head.parameters(), lr=1e-3)

    def new_task(self):
        self.prompt = nn.Parameter(0.02 * torch.randn(TOKENS, 2, WIDTH))
        self.opt.add_param_group({"params": [self.prompt], "lr": 5e-3})  # !MG501 Learner.opt

    def step(self, x, y):
        self.opt.zero_grad()
        loss = F.cross_entropy(self.net(x, self.prompt), y)
        loss.backward()
        self.opt.step()
        return loss.item()


def main(tasks=80, per_task=2):
    torch.manual_seed(3)
    learner = Learner()
    for task in range(tasks):
        learner.new_task()
        for i in range(per_task):
            loss = learner.step(*task_batch(task, i))
        if task % 10 == 9:
            print(f"task {task + 1}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
