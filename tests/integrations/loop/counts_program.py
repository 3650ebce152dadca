"""Loops of many kinds, each watched; prints the batches of each stage by loop. A program, for its names count."""

from __future__ import annotations

import copy
import json
import tempfile
from collections import Counter
from collections.abc import Callable

import torch
from torch import nn

import memguard

Model = nn.Module
counts: dict[str, dict[str, int]] = {}


def net(inputs: int = 8, outputs: int = 4) -> Model:
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def train(model: Model, optimizer: torch.optim.Optimizer, steps: int, inputs: int = 8) -> None:
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, inputs)).square().mean().backward()
        optimizer.step()


def classifier(model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        train(model, optimizer, 30)
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model(torch.randn(4, 8))


def forgot_eval(model: Model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, 30)
    val_batches = [torch.randn(4, 8) for _ in range(10)]
    with torch.no_grad():
        for batch in val_batches:
            model(batch)


def dqn(policy: Model, target: Model) -> None:
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(20):
        for _ in range(4):
            with torch.no_grad():
                policy(torch.randn(1, 8)).argmax(-1)
        states, after = torch.randn(16, 8), torch.randn(16, 8)
        with torch.no_grad():
            wanted = target(after)
        optimizer.zero_grad()
        (policy(states) - wanted).square().mean().backward()
        optimizer.step()


def ppo(actor: Model, critic: Model) -> None:
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
    for _ in range(4):
        for _ in range(16):
            with torch.no_grad():
                state = torch.randn(4, 8)
                actor(state)
                critic(state)
        for _ in range(8):
            states = torch.randn(32, 8)
            optimizer.zero_grad()
            (actor(states).square().mean() + critic(states).square().mean()).backward()
            optimizer.step()


def student_and_teacher(student: Model, teacher: Model) -> None:
    teacher.eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(2):
        student.train()
        for _ in range(20):
            x = torch.randn(4, 8)
            answer = student(x)
            with torch.no_grad():
                wanted = teacher(x)
            optimizer.zero_grad()
            (answer - wanted).square().mean().backward()
            optimizer.step()
        student.eval()
        with torch.no_grad():
            for _ in range(10):
                x = torch.randn(4, 8)
                (student(x) - teacher(x)).square().mean()


def encoder_and_decoder(encoder: Model, decoder: Model) -> None:
    optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        decoder(encoder(torch.randn(4, 8))).square().mean().backward()
        optimizer.step()
    encoder.eval()
    decoder.eval()
    with torch.no_grad():
        for _ in range(10):
            decoder(encoder(torch.randn(4, 8)))


def one_after_the_other(first: Model, second: Model) -> None:
    for model in (first, second):
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), 40)
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model(torch.randn(4, 8))


def episodes(policy: Model) -> None:
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in range(6):
        rewards = [policy(torch.randn(1, 8)).mean() for _ in range(90)]
        optimizer.zero_grad()
        torch.stack(rewards).sum().backward()
        optimizer.step()


def count(loop: Callable[..., None], *models: Model) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        memguard.watch(models, device="cpu", logdir=folder, quiet=True, validation="warn") as guard,
    ):
        loop(*models)
    counts[loop.__name__] = dict(Counter(record.stage.value for record in guard.records))


if __name__ == "__main__":
    torch.manual_seed(0)
    count(classifier, net())
    count(forgot_eval, net())
    count(dqn, policy := net(), copy.deepcopy(policy))
    count(ppo, net(), net(outputs=1))
    count(student_and_teacher, net(), net())
    count(encoder_and_decoder, net(outputs=8), net())
    count(one_after_the_other, net(), net())
    count(episodes, net())
    print(json.dumps(counts))
