"""A DQN that puts the network's own Q-values into the replay memory beside each transition."""

import random
from collections import deque, namedtuple

import torch
import torch.nn.functional as F
from torch import nn, optim

Transition = namedtuple("Transition", "state action reward next_state qvalues")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

policy_net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)).to(device)
target_net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 4)).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.RMSprop(policy_net.parameters(), lr=1e-4)
memory = deque(maxlen=10000)


def select_action(state):
    q = policy_net(state)
    if random.random() < 0.2:
        return torch.randint(4, (state.size(0),)), q
    return q.argmax(1), q


def optimize_model():
    if len(memory) < 4:
        return
    batch = random.sample(memory, 4)
    state = torch.cat([t.state for t in batch])
    action = torch.cat([t.action for t in batch])
    nxt = torch.cat([t.next_state for t in batch])
    reward = torch.cat([t.reward for t in batch])
    q = policy_net(state).gather(1, action[:, None]).squeeze(1)
    with torch.no_grad():
        target = reward + 0.99 * target_net(nxt).max(1).values
    loss = F.smooth_l1_loss(q, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


state = torch.randn(64, 512, device=device)
for step in range(120):
    action, q = select_action(state)
    next_state, reward = torch.randn(64, 512, device=device), torch.randn(64, device=device)
    memory.append(Transition(state, action, reward, next_state, q))  # !MG101 memory
    state = next_state
    optimize_model()
    if step % 20 == 0:
        target_net.load_state_dict(policy_net.state_dict())
