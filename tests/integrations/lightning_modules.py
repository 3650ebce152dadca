"""Small LightningModules for both packages; the package is the argument."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.integrations.programs import net


def loader(count: int = 24, size: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(count, 8, generator=generator), torch.randint(0, 4, (count,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=size)


def classifier(package: ModuleType) -> Any:
    """A module that remembers its losses as numbers."""

    class Classifier(package.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net()
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            x, y = batch
            loss = functional.cross_entropy(self.net(x), y)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
            x, y = batch
            self.losses.append(functional.cross_entropy(self.net(x), y).item())

        test_step = validation_step

        def predict_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> torch.Tensor:
            return self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Classifier()


def manual_gan(package: ModuleType) -> Any:
    """Two optimizers, stepped by hand."""

    class Gan(package.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.generator, self.discriminator = nn.Linear(8, 8), nn.Linear(8, 1)
            self.losses: list[float] = []

        def training_step(self, batch: Any, index: int) -> None:
            first, second = self.optimizers()
            fake = self.generator(torch.randn(4, 8))
            self._step(first, self.discriminator(fake.detach()).mean() - self.discriminator(batch[0]).mean())
            self._step(second, -self.discriminator(fake).mean())

        def _step(self, optimizer: Any, loss: torch.Tensor) -> None:
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
            self.losses.append(loss.item())

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(m.parameters(), lr=1e-2) for m in (self.discriminator, self.generator)]

    return Gan()
