"""Preferences are learnt beside a copy of the first policy: its scores are asked of a method, with gradients enabled."""

import copy

import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self, words: int = 160, width: int = 192) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.read = nn.GRU(width, width, batch_first=True)
        self.choose = nn.Linear(width, words)

    def scores(self, text: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.read(self.embed(text[:, :-1]))
        chances = self.choose(hidden).log_softmax(-1)
        return chances.gather(-1, text[:, 1:, None]).squeeze(-1).sum(1)


class Preferences:
    def __init__(self) -> None:
        self.policy = Scorer()
        self.first = copy.deepcopy(self.policy).eval()
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=1e-4)

    def margin(self, good: torch.Tensor, bad: torch.Tensor) -> torch.Tensor:
        drift = self.first.scores(good) - self.first.scores(bad)  # !MG202 self.first
        return self.policy.scores(good) - self.policy.scores(bad) - drift

    def learn(self, good: torch.Tensor, bad: torch.Tensor) -> float:
        loss = -torch.nn.functional.logsigmoid(0.1 * self.margin(good, bad)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


torch.manual_seed(0)
preferences = Preferences()
for _ in range(40):
    last = preferences.learn(torch.randint(160, (12, 24)), torch.randint(160, (12, 24)))
print(f"{last:.3f}")
