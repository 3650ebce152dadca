"""Small training programs, each run with and without memguard to see that nothing changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Results = list[torch.Tensor]
Guarding = Callable[..., contextlib.AbstractContextManager[object]]


def net(width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 4))


def batches(count: int, size: int = 4) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.randn(size, 8, generator=generator), torch.randint(0, 4, (size,), generator=generator)


def gradients(*models: nn.Module) -> Results:
    return [p.grad.clone() for model in models for p in model.parameters() if p.grad is not None]


def accumulation_with_validation(guarding: Guarding) -> Results:
    """200 optimizer steps, dropout, validation every epoch, accumulation over 2."""
    model, results = net(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with guarding(model, optimizer):
        for _ in range(4):
            for number, (x, y) in enumerate(batches(100)):
                loss = functional.cross_entropy(model(x), y) / 2
                loss.backward()
                results.append(loss.detach().clone())
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            results += [functional.cross_entropy(model(x), y).detach() for x, y in batches(5)]
            model.train()
    return results


def forces_in_evaluation(guarding: Guarding) -> Results:
    """A force field differentiates inside its forward, on inputs that ask for no gradient from outside."""

    class ForceField(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.energy = net()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = x.detach().requires_grad_(True)
            energy = self.energy(x).sum()
            return energy, _derivative(energy, x, self.training)

    model, results = ForceField(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with guarding(model, optimizer):
        model.eval()
        results += [part.detach() for x, _ in batches(3) for part in model(x)]
        model.train()
        for x, _ in batches(5):
            energy, forces = model(x)
            (energy.square() + forces.square().sum()).backward()
            optimizer.step()
            results += gradients(model)
            optimizer.zero_grad()
        model.eval()
        results += [part.detach() for x, _ in batches(3) for part in model(x)]
    return results


def _derivative(energy: torch.Tensor, x: torch.Tensor, training: bool) -> torch.Tensor:
    return -torch.autograd.grad(energy, x, create_graph=training)[0]


def training_in_eval_mode(guarding: Guarding) -> Results:
    """Fine-tuning with eval() from the start: dropout and batch statistics frozen."""
    model, results = net(), []
    model.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with guarding(model, optimizer):
        for x, y in batches(10):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            results += gradients(model)
            optimizer.step()
    return results


def two_views_in_eval_mode(guarding: Guarding) -> Results:
    """Two forwards before the first backward, in eval mode: both graphs are wanted."""
    model, results = net().eval(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with guarding(model):
        for x, _ in batches(6):
            optimizer.zero_grad()
            views = [model(x), model(x.flip(0))]
            (views[0] - views[1]).square().sum().backward()
            results += gradients(model)
            optimizer.step()
    return results


def frozen_backbone(guarding: Guarding) -> Results:
    """A frozen backbone in eval mode feeds a trained head."""
    backbone, head, results = net().eval().requires_grad_(False), nn.Linear(4, 4), []
    model = nn.Sequential(backbone, head)
    optimizer = torch.optim.Adam(head.parameters())
    with guarding(model, optimizer):
        for x, y in batches(10):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            results += gradients(model)
            optimizer.step()
    return results


def gan(guarding: Guarding) -> Results:
    """Two models, two optimizers, gradients through one into the other."""
    generator, discriminator, results = (
        nn.Linear(8, 8),
        nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)),
        [],
    )
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, discriminator)]
    with guarding([generator, discriminator], optimizers):
        for x, _ in batches(10):
            fake = generator(torch.randn(4, 8))
            optimizers[1].zero_grad()
            (discriminator(fake.detach()).mean() - discriminator(x).mean()).backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            (-discriminator(fake).mean()).backward()
            results += gradients(generator, discriminator)
            optimizers[0].step()
    return results


def gradient_checkpointing(guarding: Guarding) -> Results:
    """Recomputation runs the forward of inner modules again inside backward."""

    class Checkpointed(nn.Module):
        def __init__(self, reentrant: bool) -> None:
            super().__init__()
            self.first, self.second, self.reentrant = net(), nn.Linear(4, 4), reentrant

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = checkpoint(self.first, x.requires_grad_(), use_reentrant=self.reentrant)
            return self.second(inner)

    results = []
    for reentrant in (True, False):
        model = Checkpointed(reentrant)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        with guarding(model, optimizer):
            for x, y in batches(5):
                optimizer.zero_grad()
                functional.cross_entropy(model(x), y).backward()
                results += gradients(model)
                optimizer.step()
            model.eval()
            results += [model(x).detach() for x, _ in batches(2)]
    return results


def mixed_precision(guarding: Guarding) -> Results:
    """bfloat16 autocast around forward and loss, evaluation in between."""
    model, results = net(), []
    optimizer = torch.optim.AdamW(model.parameters())
    with guarding(model, optimizer):
        for x, y in batches(10):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = functional.cross_entropy(model(x), y)
            loss.backward()
            results += gradients(model)
            optimizer.step()
            model.eval()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                results.append(model(x).detach())
            model.train()
    return results


def lbfgs_closure(guarding: Guarding) -> Results:
    """The optimizer runs forward and backward itself, many times a step."""
    model, results = net(), []
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    with guarding(model, optimizer):
        for x, y in batches(5):

            def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                loss.backward()
                return loss

            results.append(optimizer.step(closure).detach())
    return results


def attack_after_training(guarding: Guarding) -> Results:
    """Adversarial inputs in eval mode: the inputs ask for gradients."""
    model, results = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with guarding(model, optimizer):
        for x, y in batches(5):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        for x, y in batches(3):
            x.requires_grad_()
            functional.cross_entropy(model(x), y).backward()
            results.append(x.grad.clone())
    return results


PROGRAMS: tuple[Callable[[Guarding], Results], ...] = (
    accumulation_with_validation,
    forces_in_evaluation,
    training_in_eval_mode,
    two_views_in_eval_mode,
    frozen_backbone,
    gan,
    gradient_checkpointing,
    mixed_precision,
    lbfgs_closure,
    attack_after_training,
)
