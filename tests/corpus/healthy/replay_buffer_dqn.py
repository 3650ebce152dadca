"""DQN on a toy environment: replay buffer, target network, epsilon-greedy actions without a graph."""

import random
from collections import deque, namedtuple

import torch
from torch import nn

Transition = namedtuple("Transition", "state action reward next_state")


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, n):
        return Transition(*zip(*random.sample(self.memory, n)))


def q_net():
    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))


policy_net, target_net = q_net(), q_net()
target_net.load_state_dict(policy_net.state_dict())
optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
memory = ReplayMemory(200)
state = torch.randn(1, 4)
for t in range(80):
    if random.random() < 0.3:
        action = torch.tensor([[random.randrange(2)]])
    else:
        with torch.no_grad():
            action = policy_net(state).argmax(1, keepdim=True)
    next_state = 0.9 * state + 0.1 * torch.randn(1, 4)
    memory.push(state, action, torch.tensor([1.0]), next_state)
    state = next_state
    if len(memory.memory) < 16:
        continue
    batch = memory.sample(16)
    q = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    with torch.no_grad():
        target = torch.cat(batch.reward) + 0.99 * target_net(torch.cat(batch.next_state)).max(1).values
    loss = nn.functional.smooth_l1_loss(q, target[:, None])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    with torch.no_grad():
        for p, tp in zip(policy_net.parameters(), target_net.parameters()):
            tp.lerp_(p, 0.005)
