"""Loops with more than one model or optimizer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.bench.loops.run import LoopRun


def two_models(run: LoopRun) -> None:
    """An encoder and a decoder that one step calls one after the other, each with its optimizer."""
    encoder, decoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, 64)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (encoder, decoder)]
    images = torch.rand(64, 64)
    with run.guard([encoder, decoder], optimizers):
        for _ in run.steps():
            loss = functional.mse_loss(decoder(encoder(images)), images)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()


def teacher(run: LoopRun) -> None:
    """A frozen teacher beside the student that learns from it."""
    teaching = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
    student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    images = torch.rand(64, 64)
    with run.guard([student, teaching], optimizer):
        for _ in run.steps():
            with torch.no_grad():
                wanted = teaching(images).softmax(1)
            loss = functional.kl_div(student(images).log_softmax(1), wanted, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def gan(run: LoopRun) -> None:
    """A generator and a discriminator, a step of each in turn."""
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))
    discriminator = nn.Sequential(nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real, ones, zeros = torch.rand(32, 64), torch.ones(32, 1), torch.zeros(32, 1)
    judge = functional.binary_cross_entropy_with_logits
    with run.guard([generator, discriminator], [g_optimizer, d_optimizer]):
        for _ in run.steps():
            fake = generator(torch.randn(32, 16))
            d_loss = judge(discriminator(real), ones) + judge(discriminator(fake.detach()), zeros)
            d_optimizer.zero_grad()
            d_loss.backward()
            d_optimizer.step()
            g_loss = judge(discriminator(fake), ones)
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()


class _GoodnessLayer(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.01)

    def learn(self, good: torch.Tensor, bad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.cat([2 - self(good).relu().square().mean(1), self(bad).relu().square().mean(1) - 2])
        loss = functional.softplus(scores).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            return self(good).relu(), self(bad).relu()


def forward_forward(run: LoopRun) -> None:
    """Layers that learn one after the other, each with an optimizer of its own."""
    layers = nn.ModuleList([_GoodnessLayer(64, 64), _GoodnessLayer(64, 64)])
    good, bad = torch.rand(32, 64), torch.rand(32, 64)
    with run.guard(list(layers), [layer.optimizer for layer in layers]):
        for _ in run.steps():
            positive, negative = good, bad
            for layer in layers:
                positive, negative = layer.learn(positive, negative)


def dqn(run: LoopRun) -> None:
    """Four moves, then one update from the memory of moves; a target network that follows now and then."""
    online = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    target = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    seen, moves, rewards = torch.randn(512, 4), torch.randint(2, (512, 1)), torch.randn(512)
    with run.guard([online, target], optimizer):
        for step in run.steps():
            for place in range(4 * step, 4 * step + 4):
                with torch.no_grad():
                    moves[place % 512] = online(seen[place % 512]).argmax()
            chosen = torch.randint(511, (32,))
            values = online(seen[chosen]).gather(1, moves[chosen]).squeeze(1)
            with torch.no_grad():
                wanted = rewards[chosen] + 0.99 * target(seen[chosen + 1]).max(1).values
            loss = functional.smooth_l1_loss(values, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 100 == 0:
                target.load_state_dict(online.state_dict())


class _ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.actor, self.critic = nn.Linear(4, 64), nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.body(seen))
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def ppo(run: LoopRun) -> None:
    """A roll-out of 32 moves, then eight updates from it; a step is one update."""
    policy = _ActorCritic()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    state = torch.randn(8, 4)
    with run.guard(policy, optimizer):
        rollout: list[tuple[torch.Tensor, ...]] = []
        for step in run.steps():
            if step % 8 == 0:
                rollout.clear()
                with torch.no_grad():
                    for _ in range(32):
                        logits, value = policy(state)
                        chances = torch.distributions.Categorical(logits=logits, validate_args=False)
                        move = chances.sample()
                        rollout.append((state, move, chances.log_prob(move), value))
                        state = 0.9 * state + 0.1 * torch.randn(8, 4)
            seen, moves, before, values = (torch.cat(column) for column in zip(*rollout, strict=True))
            logits, value = policy(seen)
            ratio = (torch.distributions.Categorical(logits=logits, validate_args=False).log_prob(moves) - before).exp()
            loss = -torch.min(ratio, ratio.clamp(0.8, 1.2)).mean() + functional.mse_loss(value, values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
