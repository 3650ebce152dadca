"""A real small training with planted faults, for `memguard demo`: find them before memguard does.

A character model learns the text of Python's own standard library. The program is an ordinary one and knows nothing of
memguard; `memguard demo` copies it beside the recording and runs it there.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional


class CharLM(nn.Module):
    """Embedding, a recurrent layer, one score for each character."""

    def __init__(self, characters: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.scores = nn.Linear(width, characters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Scores of shape (batch, length, characters) for text of shape (batch, length)."""
        hidden, _ = self.recurrent(self.embedding(text))
        scores: torch.Tensor = self.scores(hidden)
        return scores


def read_text(limit: int = 500_000) -> str:
    """The source code of the standard library's modules, one after the other."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("[a-d]*.py")))[:limit]


def draw(codes: torch.Tensor, size: int = 16, length: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch of pieces of the text, and the same pieces one character later."""
    starts = torch.randint(0, len(codes) - length - 1, (size,)).tolist()
    pieces = torch.stack([codes[start : start + length + 1] for start in starts])
    return pieces[:, :-1], pieces[:, 1:]


def loss_of(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy over all characters of a batch."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def evaluate(model: CharLM, codes: torch.Tensor) -> float:
    """Mean loss over five batches."""
    model.eval()
    total = 0.0
    for _ in range(5):
        inputs, targets = draw(codes)
        total += loss_of(model(inputs), targets).item()
    model.train()
    return total / 5


def main(steps: int = 1000) -> None:
    """Trains until the planted leak has filled the device."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # operators as small as these only wait for more threads
    text = read_text()
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    codes = torch.tensor([alphabet[character] for character in text], dtype=torch.uint8).long()
    train, validation = codes[:-50_000], codes[-50_000:]
    model = CharLM(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses: list[torch.Tensor] = []
    samples: list[torch.Tensor] = []
    for step in range(1, steps + 1):
        inputs, targets = draw(train)
        scores = model(inputs)
        loss = loss_of(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
        samples.append(scores.detach())
        if step % 40 == 0:
            mean = torch.stack(losses[-40:]).mean().item()
            print(
                f"step {step}: training loss {mean:.2f}, validation loss {evaluate(model, validation):.2f}", flush=True
            )


if __name__ == "__main__":
    main()
