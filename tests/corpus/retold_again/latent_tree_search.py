# MuZero-like: latent dynamics + a small tree per root state, values are regressed on the tree's best leaf
import math
import torch
from torch import nn


class Node:
    def __init__(self, latent, parent=None, action=None, prior=1.0):
        self.latent = latent
        self.parent = parent  # !MG306 Node.parent
        self.action = action
        self.prior = prior
        self.visits = 0
        self.total = 0.0
        self.children = []
        if parent is not None:
            parent.children.append(self)

    @property
    def q(self):
        return self.total / self.visits if self.visits else 0.0

    def best_child(self, c=1.4):
        n = math.sqrt(self.visits + 1)
        return max(self.children, key=lambda ch: ch.q + c * ch.prior * n / (1 + ch.visits))

    def backup(self, value):
        node = self
        while node is not None:
            node.visits += 1
            node.total += value
            node = node.parent


class World(nn.Module):
    def __init__(self, d=256, actions=4):
        super().__init__()
        self.actions = actions
        self.repr = nn.Sequential(nn.Linear(32, d), nn.ELU())
        self.dyn = nn.Sequential(nn.Linear(d + actions, d), nn.ELU(), nn.Linear(d, d))
        self.value = nn.Linear(d, 1)
        self.policy = nn.Linear(d, actions)

    def imagine(self, latent, a):
        onehot = torch.zeros(latent.size(0), self.actions)
        onehot[:, a] = 1
        return torch.tanh(self.dyn(torch.cat([latent, onehot], 1)))


@torch.no_grad()
def search(world, obs, simulations=6):
    root = Node(world.repr(obs))
    for _ in range(simulations):
        node = root
        while node.children:
            node = node.best_child()
        prior = world.policy(node.latent).softmax(1).mean(0).tolist()
        for a in range(world.actions):
            Node(world.imagine(node.latent, a), node, a, prior[a])
        node.backup(world.value(node.latent).mean().item())
    visits = torch.tensor([float(c.visits) for c in root.children])
    return visits / visits.sum().clamp(min=1), root.q


def learn(world, opt, obs, target_pi, target_v):
    opt.zero_grad()
    latent = world.repr(obs)
    logp = world.policy(latent).log_softmax(1)
    loss = -(target_pi * logp).sum(1).mean() + (world.value(latent).squeeze(1) - target_v).pow(2).mean()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    torch.manual_seed(0)
    world = World()
    opt = torch.optim.Adam(world.parameters(), lr=1e-3)
    for it in range(34):
        obs = torch.randn(384, 32)
        pi, q = search(world, obs)
        reward = obs[:, :4].sum(1) * 0.1
        loss = learn(world, opt, obs, pi, 0.9 * q + reward)
        if it % 10 == 0:
            print(f"iter {it} loss {loss:.4f} root q {q:+.3f}")


main()
