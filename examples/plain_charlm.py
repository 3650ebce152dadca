"""A small character model on the text of Python's own standard library, in a plain loop guarded by memguard.wrap.

    python examples/plain_charlm.py [--steps 150] [--device virtual:256MiB] [--logdir DIR]

The loop knows nothing of memguard but one line. Its evaluation forgot no_grad: memguard sees to it, and says so.
"""

import argparse
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import memguard


class CharLM(nn.Module):
    """Embedding, two recurrent layers, one score for each character."""

    def __init__(self, characters: int, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.recurrent = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.scores = nn.Linear(width, characters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.scores(self.recurrent(self.embedding(text))[0])


def read_text(limit: int = 2_000_000) -> str:
    """The source code of the standard library's modules, one after the other."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py")))[:limit]


def draw(codes: torch.Tensor, size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of pieces of the text, and the same pieces one character later."""
    starts = torch.randint(0, len(codes) - length - 1, (size,))
    pieces = torch.stack([codes[start : start + length + 1] for start in starts])
    return pieces[:, :-1], pieces[:, 1:]


def make() -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    """One step at full size: `memguard check examples/plain_charlm.py:make --budget 64MiB` runs it without a GPU."""
    model = CharLM(characters=512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step() -> None:
        pieces = torch.randint(512, (16, 65))
        loss = functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--logdir")
    given = parser.parse_args()

    torch.manual_seed(0)
    text = read_text()
    alphabet = sorted(set(text))
    numbers = {character: number for number, character in enumerate(alphabet)}
    codes = torch.tensor([numbers[character] for character in text])
    train, validation = codes[:-100_000], codes[-100_000:]

    place = (
        "cuda" if given.device.startswith("cuda") or (given.device == "auto" and torch.cuda.is_available()) else "cpu"
    )
    model = memguard.wrap(CharLM(len(alphabet)).to(place), device=given.device, logdir=given.logdir)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(1, given.steps + 1):
        inputs, targets = (part.to(place) for part in draw(train, size=16, length=64))
        loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            model.eval()
            losses = []
            for _ in range(5):
                inputs, targets = (part.to(place) for part in draw(validation, size=16, length=64))
                losses.append(functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).item())
            model.train()
            print(f"step {step}: training loss {loss.item():.3f}, validation loss {sum(losses) / len(losses):.3f}")
    memguard.unwrap(model)


if __name__ == "__main__":
    main()
