"""The policy is tried out after each update: in eval mode, with gradients."""

import torch
from torch import nn


class Env:
    def reset(self):
        self.s, self.t = torch.randn(1, 6), 0
        return self.s

    def step(self, action):
        self.s = torch.tanh(self.s + 0.1 * action.mean() + 0.05 * torch.randn(1, 6))
        self.t += 1
        return self.s, -self.s.abs().sum().item(), self.t >= 10


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(6, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def learn(self, optimizer, batch):
        states, actions = batch
        loss = nn.functional.mse_loss(self.pi(states), actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def evaluate(self, env, episodes):
        self.eval()
        score = 0.0
        for _ in range(episodes):
            state, done = env.reset(), False
            while not done:
                action = self.pi(state)  # !MG201 Sequential
                state, reward, done = env.step(action.detach())
                score += reward
        self.train()
        return score / episodes


agent, env = Agent(), Env()
optimizer = torch.optim.Adam(agent.parameters())
for round_ in range(3):
    for _ in range(15):
        agent.learn(optimizer, (torch.randn(64, 6), torch.randn(64, 2)))
    print(agent.evaluate(env, 2))
