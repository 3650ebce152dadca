"""Off-policy agent whose memory is never trimmed; after Stable-Baselines3 / CleanRL issues "memory usage keeps increasing until the job is
killed, buffer_size is ignored"."""

# device: virtual:160MiB
# runs out of memory
# !MG504 -
import random

import torch
import torch.nn.functional as F
from torch import nn

N_ENVS, SIDE, ACTIONS, TOTAL_STEPS = 8, 64, 4, 1500


class LakeWorld:
    """A boat (bright spot) is to be steered towards the middle of the lake."""

    def __init__(self, n, seed=0):
        self.n, self.g = n, torch.Generator().manual_seed(seed)
        self.pos = torch.randint(8, SIDE - 8, (n, 2), generator=self.g)
        self.moves = torch.tensor([[0, 2], [0, -2], [2, 0], [-2, 0]])

    def render(self):
        axis = torch.arange(SIDE)
        dy = (axis.view(1, -1, 1) - self.pos[:, 0].view(-1, 1, 1)).float()
        dx = (axis.view(1, 1, -1) - self.pos[:, 1].view(-1, 1, 1)).float()
        return torch.exp(-(dy**2 + dx**2) / 20)

    def step(self, actions):
        before = (self.pos - SIDE // 2).abs().sum(1)
        self.pos = (self.pos + self.moves[actions]).clamp(2, SIDE - 3)
        after = (self.pos - SIDE // 2).abs().sum(1)
        return self.render(), (before - after).float() / 2


class ReplayMemory:
    def __init__(self, buffer_size):
        self.buffer_size = buffer_size
        self.transitions = []

    def push(self, obs, action, reward, next_obs):
        self.transitions.append((obs, action, reward, next_obs))  # !MG301 ReplayMemory.transitions

    def sample(self, k):
        picks = random.sample(range(len(self.transitions)), k)
        obs, act, rew, nxt = zip(*(self.transitions[i] for i in picks))
        return torch.cat(obs), torch.cat(act), torch.cat(rew), torch.cat(nxt)


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.AvgPool2d(4), nn.Flatten(), nn.Linear((SIDE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, ACTIONS)
        )

    def forward(self, obs):
        return self.net(obs.unsqueeze(1))


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, q, target = LakeWorld(N_ENVS), QNet(), QNet()
    target.load_state_dict(q.state_dict())
    memory = ReplayMemory(buffer_size=400)
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    obs, score = env.render(), 0.0
    for step in range(TOTAL_STEPS):
        eps = max(0.05, 1 - step / 400)
        with torch.no_grad():
            greedy = q(obs).argmax(1)
        explore = torch.rand(N_ENVS) < eps
        action = torch.where(explore, torch.randint(ACTIONS, (N_ENVS,)), greedy)
        next_obs, reward = env.step(action)
        memory.push(obs, action, reward, next_obs)
        obs, score = next_obs, 0.99 * score + 0.01 * reward.mean().item()
        if step >= 16:
            o, a, r, n = memory.sample(4)
            with torch.no_grad():
                y = r + 0.9 * target(n).max(1).values
            loss = F.smooth_l1_loss(q(o).gather(1, a[:, None]).squeeze(1), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if step % 100 == 0:
            target.load_state_dict(q.state_dict())
        if step % 300 == 0:
            print(f"step {step} score {score:.3f} stored {len(memory.transitions)}")


if __name__ == "__main__":
    main()
