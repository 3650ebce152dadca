"""Self-play: (board, policy, value) examples are pooled for the next learning phase with the network's graph."""

import random

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten()
        )
        self.policy, self.value = nn.Linear(32 * 64, 64), nn.Linear(32 * 64, 1)

    def forward(self, b):
        h = self.trunk(b)
        return self.policy(h).log_softmax(-1), torch.tanh(self.value(h)).squeeze(-1)


class Coach:
    def __init__(self, net):
        self.net, self.examples = net, []
        self.opt = torch.optim.Adam(net.parameters(), 1e-3)

    def play(self, games=8):
        boards = torch.randn(games, 2, 8, 8)
        logp, value = self.net(boards)
        outcome = torch.randint(0, 2, (games,)).float() * 2 - 1
        for i in range(games):
            self.examples.append((boards[i], logp[i], value[i], outcome[i]))  # !MG101 Coach.examples

    def learn(self, size=16):
        batch = random.sample(self.examples, min(size, len(self.examples)))
        boards = torch.stack([e[0] for e in batch])
        pi = torch.stack([e[1] for e in batch]).detach().exp()
        z = torch.stack([e[3] for e in batch])
        logp, v = self.net(boards)
        loss = (v - z).pow(2).mean() - (pi * logp).sum(1).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


coach = Coach(Net())
for it in range(40):
    coach.play()
    loss = coach.learn()
print(loss, len(coach.examples))
