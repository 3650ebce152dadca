"""A navigation agent in evaluation: an external memory is written at each step and never cut."""

import torch
from torch import nn


class NeuralMap(nn.Module):
    def __init__(self, channels=8, size=12):
        super().__init__()
        self.channels, self.size = channels, size
        self.write = nn.Conv2d(channels + 3, channels, 3, padding=1)
        self.read = nn.Linear(channels * size * size, 16)
        self.policy = nn.Linear(16, 4)
        self.reset()

    def reset(self):
        self.memory = torch.zeros(1, self.channels, self.size, self.size)

    def forward(self, view):
        self.memory = torch.tanh(self.write(torch.cat([self.memory, view], 1)))  # !MG102 NeuralMap.memory
        return self.policy(torch.relu(self.read(self.memory.flatten(1))))


agent = NeuralMap()
agent.eval()
for step in range(60):
    action = agent(torch.rand(1, 3, 12, 12)).argmax(-1).item()
