"""A recurrent net continues waves, in a loop with Lightning Fabric guarded by memguard.watch.

    python examples/fabric_forecaster.py [--steps 80] [--leak] [--device virtual:256MiB] [--logdir DIR]

With --leak the predictions are kept for a plot, each with its graph: memguard names the line.
"""

import argparse

import torch
from lightning.fabric import Fabric
from torch import nn
from torch.nn import functional

import memguard


class Forecaster(nn.Module):
    """One number in, the next number out; the state is the caller's."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.recurrent = nn.GRU(1, width, batch_first=True)
        self.next = nn.Linear(width, 1)

    def forward(self, wave: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs, state = self.recurrent(wave, state)
        return self.next(outputs), state


def draw(step: int, length: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """The next piece of sixteen waves of different pitch, and the same one number later."""
    times = torch.arange(step * length, (step + 1) * length + 1) / 8
    waves = torch.sin(times * torch.linspace(0.5, 2, 16)[:, None])[..., None]
    return waves[:, :-1], waves[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logdir")
    given = parser.parse_args()

    torch.manual_seed(0)
    fabric = Fabric(accelerator="cpu" if given.device.startswith("virtual") or given.device == "cpu" else "auto")
    fabric.launch()
    bare = Forecaster()
    model, optimizer = fabric.setup(bare, torch.optim.AdamW(bare.parameters(), lr=3e-3))
    state = torch.zeros(1, 16, 64, device=fabric.device)
    plot = []
    with memguard.watch(model, optimizer, device=given.device, logdir=given.logdir):
        for step in range(given.steps):
            wave, target = (part.to(fabric.device) for part in draw(step))
            predicted, state = model(wave, state.detach())
            loss = functional.mse_loss(predicted, target)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if given.leak:
                plot.append(predicted[0])
            if step % 20 == 19:
                with torch.no_grad():
                    model.eval()
                    wave, target = (part.to(fabric.device) for part in draw(step + 1))
                    error = functional.mse_loss(model(wave, state)[0], target)
                    model.train()
                print(f"step {step + 1}: training loss {loss:.4f}, validation loss {error:.4f}")


if __name__ == "__main__":
    main()
