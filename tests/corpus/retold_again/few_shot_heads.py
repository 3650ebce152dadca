"""Meta-learns a time-series encoder: every task gets its own head, adapted by one gradient step on the support set."""

import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class MetaConfig:
    window: int = 64
    feature_dim: int = 192
    horizon: int = 96
    shots: int = 16
    queries: int = 24
    tasks_per_batch: int = 4
    meta_steps: int = 60
    inner_lr: float = 0.1
    outer_lr: float = 1e-3
    report_every: int = 10


class SeriesTask:
    """One household: a sum of two sinusoids with its own amplitudes and phases."""

    def __init__(self, cfg, gen):
        self.cfg, self.gen = cfg, gen
        self.amplitude = 0.5 + torch.rand(2, generator=gen)
        self.phase = 2 * math.pi * torch.rand(2, generator=gen)
        self.period = torch.tensor([24.0, 7.0]) * (0.8 + 0.4 * torch.rand(2, generator=gen))

    def draw(self, count):
        start = 200 * torch.rand(count, 1, generator=self.gen)
        t = start + torch.arange(self.cfg.window + self.cfg.horizon)
        wave = sum(a * torch.sin(2 * math.pi * t / p + ph) for a, p, ph in zip(self.amplitude, self.period, self.phase))
        wave = wave + 0.05 * torch.randn(wave.shape, generator=self.gen)
        return wave[:, : self.cfg.window], wave[:, self.cfg.window :]


class TaskSource:
    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self):
        return [SeriesTask(self.cfg, self.gen) for _ in range(self.cfg.tasks_per_batch)]


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 5, padding=2)
        self.proj = nn.Linear(16 * cfg.window // 4, cfg.feature_dim)

    def forward(self, window):
        h = F.relu(self.conv(window.unsqueeze(1)))
        return torch.tanh(self.proj(F.avg_pool1d(h, 4).flatten(1)))


class ForecastHead(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.mix = nn.Linear(cfg.feature_dim, cfg.feature_dim)
        self.out = nn.Linear(cfg.feature_dim, cfg.horizon)

    def forward(self, features):
        return self.out(torch.tanh(self.mix(features)))


class HeadFactory:
    """Fresh heads that all begin from the learned initial values."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.prior = ForecastHead(cfg)

    def create(self):
        head = ForecastHead(self.cfg)
        head.load_state_dict(self.prior.state_dict())
        return head


class InnerLoop:
    def __init__(self, cfg, encoder, factory):
        self.cfg, self.encoder, self.factory = cfg, encoder, factory

    def adapt(self, task):
        head = self.factory.create()
        window, future = task.draw(self.cfg.shots)
        support_loss = F.mse_loss(head(self.encoder(window)), future)
        support_loss.backward(create_graph=True, inputs=list(head.parameters()))  # !MG104 head
        return {name: p - self.cfg.inner_lr * p.grad for name, p in head.named_parameters()}, head

    def query_loss(self, task):
        weights, head = self.adapt(task)
        window, future = task.draw(self.cfg.queries)
        predicted = torch.func.functional_call(head, weights, (self.encoder(window),))
        return F.mse_loss(predicted, future)


class RunningMean:
    def __init__(self, decay=0.9):
        self.decay, self.value = decay, None

    def update(self, x):
        self.value = x if self.value is None else self.decay * self.value + (1 - self.decay) * x
        return self.value


class PriorTuner:
    """Fits the shared initial head on pooled data with the encoder held fixed."""

    def __init__(self, cfg, encoder, prior):
        self.cfg, self.encoder, self.prior = cfg, encoder, prior
        self.optimizer = torch.optim.SGD(prior.parameters(), lr=0.05, momentum=0.9)

    def step(self, task):
        window, future = task.draw(self.cfg.shots)
        with torch.no_grad():
            features = self.encoder(window)
        F.mse_loss(self.prior(features), future).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class MetaTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.encoder = Encoder(cfg)
        self.factory = HeadFactory(cfg)
        self.inner = InnerLoop(cfg, self.encoder, self.factory)
        self.prior_tuner = PriorTuner(cfg, self.encoder, self.factory.prior)
        self.outer = torch.optim.Adam(self.encoder.parameters(), lr=cfg.outer_lr)

    def meta_step(self, tasks):
        total = 0.0
        for task in tasks:
            total += self._accumulate(task, len(tasks))
        self.outer.step()
        self.outer.zero_grad()
        self.prior_tuner.step(tasks[0])
        return total / len(tasks)

    def _accumulate(self, task, count):
        loss = self.inner.query_loss(task)
        (loss / count).backward(inputs=list(self.encoder.parameters()))
        return loss.item()


def main():
    torch.manual_seed(0)
    cfg = MetaConfig()
    trainer, source, mean = MetaTrainer(cfg), TaskSource(cfg, 5), RunningMean()
    for step in range(cfg.meta_steps):
        value = mean.update(trainer.meta_step(source.batch()))
        if (step + 1) % cfg.report_every == 0:
            print(f"meta step {step + 1:3d}: query loss {value:.4f}")


if __name__ == "__main__":
    main()
