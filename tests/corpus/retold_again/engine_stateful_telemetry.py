"""Next-value prediction on a long telemetry stream with a stateful GRU and a small in-house engine."""

import argparse

import torch
from torch import nn


class Engine:
    """Device placement, backward and parameter updates in one place."""

    def __init__(self, lr, clip):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.lr, self.clip = lr, clip
        self.params = []

    def prepare(self, module):
        module.to(self.device)
        self.params = [p for p in module.parameters() if p.requires_grad]
        return module

    def backward(self, loss):
        loss.backward(retain_graph=True)  # !MG103 StreamTrainer.state

    def update(self):
        norm = nn.utils.clip_grad_norm_(self.params, self.clip)
        for p in self.params:
            p.data.add_(p.grad, alpha=-self.lr)
            p.grad = None
        return float(norm)


class TelemetryNet(nn.Module):
    def __init__(self, channels, hidden):
        super().__init__()
        self.rnn = nn.GRU(channels, hidden, batch_first=True)
        self.head = nn.Linear(hidden, channels)

    def forward(self, x, state=None):
        out, state = self.rnn(x, state)
        return self.head(out), state


class StreamTrainer:
    def __init__(self, args):
        self.args = args
        self.engine = Engine(args.lr, clip=1.0)
        self.model = self.engine.prepare(TelemetryNet(args.channels, args.hidden))
        self.state = None

    def windows(self):
        t = torch.linspace(0, 40, self.args.steps * self.args.window + 1)
        phase = torch.rand(self.args.batch, 1, self.args.channels) * 6.28
        series = torch.sin(t[None, :, None] + phase) + 0.05 * torch.randn(
            self.args.batch, t.numel(), self.args.channels
        )
        for i in range(self.args.steps):
            lo = i * self.args.window
            yield series[:, lo : lo + self.args.window], series[:, lo + 1 : lo + self.args.window + 1]

    def step(self, x, y):
        x, y = x.to(self.engine.device), y.to(self.engine.device)
        pred, self.state = self.model(x, self.state)  # !MG102 StreamTrainer.state
        loss = nn.functional.mse_loss(pred, y)
        self.engine.backward(loss)
        self.engine.update()
        return loss.item()

    def run(self):
        for epoch in range(self.args.epochs):
            self.state = None
            total = 0.0
            for i, (x, y) in enumerate(self.windows()):
                total += self.step(x, y)
                if (i + 1) % 20 == 0:
                    print(f"epoch {epoch} step {i + 1} mse {total / (i + 1):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--window", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    torch.manual_seed(3)
    StreamTrainer(parser.parse_args()).run()
