"""Two towers learn which pictures belong together, in a loop with Accelerate guarded by memguard.watch.

    python examples/accelerate_retrieval.py [--steps 60] [--leak] [--device virtual:256MiB] [--logdir DIR]

With --leak the embeddings of every batch are kept on the device to search in them later: memguard names the line.
"""

import argparse

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import memguard


class Tower(nn.Module):
    """A picture of 8 by 8 pixels becomes a direction in space."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 128))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.net(pictures), dim=1)


def contrast(directions: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
    """Pictures of the same digit attract, others repel."""
    likeness = directions @ directions.T * 10 - 1e4 * torch.eye(len(digits), device=digits.device)
    same = (digits[:, None] == digits).float().fill_diagonal_(0)
    return -(functional.log_softmax(likeness, dim=1) * same).sum() / same.sum().clamp(min=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--leak", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logdir", default="accelerate_retrieval")
    given = parser.parse_args()

    torch.manual_seed(0)
    on_cpu = given.device.startswith("virtual") or given.device == "cpu"
    accelerator = Accelerator(
        cpu=on_cpu, gradient_accumulation_steps=2, log_with="tensorboard", project_dir=given.logdir
    )
    accelerator.init_trackers("retrieval")
    digits = load_digits()
    pictures = TensorDataset(torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target))
    model = Tower()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=1e-3), DataLoader(pictures, batch_size=64, shuffle=True)
    )
    index = []
    with memguard.watch(model, optimizer, device=given.device, logdir=given.logdir) as guard:
        step = 0
        while step < given.steps:
            for inputs, labels in loader:
                with accelerator.accumulate(model):
                    directions = model(inputs)
                    loss = contrast(directions, labels)
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                if given.leak:
                    index.append(directions.detach())
                step += 1
                if step % 20 == 0:
                    print(f"step {step}: training loss {loss:.3f}")
                    accelerator.log({"loss": loss.item(), **guard.scalars()}, step=step)
                if step == given.steps:
                    break
        model.eval()
        with torch.no_grad():
            inputs, labels = accelerator.gather_for_metrics(next(iter(loader)))
            nearest = (model(inputs) @ model(inputs).T).fill_diagonal_(-1).argmax(1)
    accelerator.end_training()
    print(f"validation: the nearest picture shows the same digit in {(labels[nearest] == labels).float().mean():.0%}")


if __name__ == "__main__":
    main()
