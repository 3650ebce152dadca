"""A crawler learns from its diary: five moves without a graph for each lesson, and pages that no lesson reads stay."""
# device: virtual:8MiB

import torch
from torch import nn


class Diary:
    def __init__(self, recent: int) -> None:
        self.recent = recent
        self.pages: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def write(self, seen: torch.Tensor, move: torch.Tensor, after: torch.Tensor) -> None:
        self.pages.append((seen, move, after))  # !MG301 Diary.pages

    def lesson(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        seen, move, after = zip(*self.pages[-self.recent :: 4], strict=True)
        return torch.stack(seen), torch.stack(move), torch.stack(after)


def main() -> None:
    torch.manual_seed(0)
    policy, world = nn.Linear(96, 24), nn.Linear(120, 96)
    optimizer = torch.optim.SGD(world.parameters(), lr=1e-2)
    diary = Diary(recent=32)
    state = torch.randn(8, 96)
    for turn in range(1200):
        with torch.no_grad():
            move = policy(state)
        after = torch.tanh(state + 0.1 * torch.randn_like(state))
        diary.write(state, move, after)
        state = after
        if turn >= 60 and turn % 5 == 0:
            seen, moves, then = diary.lesson()
            loss = (world(torch.cat([seen, moves], dim=-1)) - then).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"{len(diary.pages)} pages, {loss.item():.3f}")


main()
