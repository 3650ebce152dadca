"""Retells pytorch/pytorch#35901 (half of the GPU's memory cannot be used: the big segments are cut up by smaller blocks that
stay): latent replay stores feature maps during task 1, and rehearses them during task 2."""

# device: virtual:440MiB
# !MG401 -
import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
BATCH, SIZE, KEEP, SLOTS = 32, 96, 18, 18


class Backbone(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 5, padding=2)
        self.mix = nn.Conv2d(width, width, 3, padding=1, groups=4)
        self.point = nn.Conv2d(width, width, 1)
        self.head = nn.Linear(width, 10)

    def latents(self, x):
        return torch.tanh(self.stem(x))

    def classify(self, z):
        z = torch.tanh(self.mix(z))
        z = torch.tanh(self.point(z))
        return self.head(z.mean(dim=(2, 3)))


class LatentMemory:
    """a fixed number of stored latent batches with their labels"""

    def __init__(self, slots):
        self.slots = slots
        self.items = []

    def offer(self, z, y):
        if len(self.items) < self.slots:
            self.items.append((z[:KEEP].detach().clone(), y[:KEEP].clone()))

    def draw(self, step):
        return self.items[step % len(self.items)]


def task_batches(task, n):
    gen = torch.Generator().manual_seed(40 + task)
    for _ in range(n):
        y = torch.randint(5 * task, 5 * task + 5, (BATCH,), generator=gen)
        x = torch.rand(BATCH, 3, SIZE, SIZE, generator=gen)
        x[:, 0] += y[:, None, None] / 5
        yield x, y


def main():
    torch.manual_seed(0)
    net = Backbone().to(device)
    memory = LatentMemory(SLOTS)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    for step, (x, y) in enumerate(task_batches(0, 20)):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        z = net.latents(x)
        loss = F.cross_entropy(net.classify(z), y)
        loss.backward()
        opt.step()
        memory.offer(z, y)
        del z
    print(f"task 1 loss {loss.item():.4f}, {len(memory.items)} latent batches stored")

    for step, (x, y) in enumerate(task_batches(1, 40)):
        x, y = x.to(device), y.to(device)
        opt.zero_grad()
        old_z, old_y = memory.draw(step)
        new = F.cross_entropy(net.classify(net.latents(x)), y)
        new.backward()
        old = F.cross_entropy(net.classify(old_z), old_y)
        old.backward()
        opt.step()
        if step % 20 == 0:
            print(f"task 2 step {step} new {new.item():.4f} old {old.item():.4f}")


if __name__ == "__main__":
    main()
