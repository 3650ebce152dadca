"""Defect detection with hard-example mining: the hardest image of recent batches is replayed."""

# device: virtual:256MiB
import random
from collections import deque

import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class DefectNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.fc = nn.Linear(256, 2)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


class Callback:
    def on_batch_end(self, trainer, images, labels, per_sample):
        pass

    def on_epoch_end(self, trainer, epoch):
        pass


class HardExampleMiner(Callback):
    def __init__(self, capacity=120, replay=8):
        self.bank = deque(maxlen=capacity)
        self.replay = replay

    def on_batch_end(self, trainer, images, labels, per_sample):
        worst = int(per_sample.argmax())
        self.bank.append((images[worst], int(labels[worst])))  # !MG302 HardExampleMiner.bank

    def sample(self):
        if len(self.bank) < self.replay:
            return None
        picks = random.sample(list(self.bank), self.replay)
        return torch.stack([p[0] for p in picks]), torch.tensor([p[1] for p in picks], device=device)


class ProgressPrinter(Callback):
    def on_epoch_end(self, trainer, epoch):
        print(f"epoch {epoch}: loss {trainer.mean_loss:.4f}, replayed {trainer.replayed}")


class Trainer:
    def __init__(self, model, miner, callbacks):
        self.model, self.miner = model.to(device), miner
        self.callbacks = [miner, *callbacks]
        self.opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss(reduction="none")
        self.mean_loss, self.replayed = 0.0, 0

    def update(self, images, labels):
        per_sample = self.criterion(self.model(images), labels)
        per_sample.mean().backward()
        self.opt.step()
        self.opt.zero_grad()
        return per_sample.detach()

    def fit(self, epochs=3, steps=50, batch=64):
        for epoch in range(epochs):
            total = 0.0
            for _ in range(steps):
                images, labels = make_batch(batch)
                per_sample = self.update(images, labels)
                total += per_sample.mean().item()
                for cb in self.callbacks:
                    cb.on_batch_end(self, images, labels, per_sample)
                hard = self.miner.sample()
                if hard is not None:
                    self.update(*hard)
                    self.replayed += self.miner.replay
            self.mean_loss = total / steps
            for cb in self.callbacks:
                cb.on_epoch_end(self, epoch)


def make_batch(n):
    images = torch.randn(n, 3, 40, 40, device=device)
    labels = torch.randint(2, (n,), device=device)
    images[labels == 1, :, 10:16, 10:16] += 1.0
    return images, labels


if __name__ == "__main__":
    torch.manual_seed(5)
    random.seed(5)
    Trainer(DefectNet(), HardExampleMiner(), [ProgressPrinter()]).fit()
