"""From a while on, every sixteenth batch leaves its hardest row for a report: a view, and with it the whole batch."""
# device: virtual:64MiB
# needs an allocator: it begins where few batches are looked at, and only a floor that rises tells that it does.

import torch
from torch import nn


class Report:
    def __init__(self) -> None:
        self.hardest: list[torch.Tensor] = []

    def note(self, batch: torch.Tensor, errors: torch.Tensor) -> None:
        self.hardest.append(batch[errors.argmax()])  # !MG302 Report.hardest


def main() -> None:
    torch.manual_seed(0)
    model, report = nn.Sequential(nn.Linear(512, 8), nn.Tanh(), nn.Linear(8, 512)), Report()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1300):
        batch = torch.randn(96, 512)
        errors = (model(batch) - batch).square().mean(dim=1)
        errors.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 400 and step % 16 == 0:
            report.note(batch, errors.detach())
    print(f"{len(report.hardest)} rows, {torch.stack(report.hardest).norm():.1f}")


main()
