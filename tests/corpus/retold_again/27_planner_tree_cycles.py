"""LightZero PR 492: the AlphaZero trees are never freed because parent and child nodes own each other.  The same in Python
for a robot arm's planner: each node holds a latent map on the device, knows its parent and its children, and the
whole tree of every decision waits for the cyclic garbage collector.
https://github.com/opendilab/LightZero/pull/492
"""

import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"

OPTIONS = {"latent": (16, 64, 64), "actions": 6, "simulations": 20, "decisions": 70, "c_puct": 1.4, "lr": 1e-3}


class Node:
    def __init__(self, latent, parent=None, prior=1.0):
        self.latent = latent
        self.parent = parent  # !MG306 Node.parent
        self.prior = prior
        self.children = {}
        self.visits, self.value_sum = 0, 0.0

    def expand(self, action, latent, prior):
        self.children[action] = Node(latent, parent=self, prior=prior)
        return self.children[action]

    def backup(self, value):
        node = self
        while node is not None:
            node.visits += 1
            node.value_sum += value
            node = node.parent

    def ucb(self, c):
        parent_visits = self.parent.visits if self.parent else 1
        return c * self.prior * math.sqrt(parent_visits) / (1 + self.visits)


class WorldModel(nn.Module):
    def __init__(self, channels, actions):
        super().__init__()
        self.action = nn.Embedding(actions, channels)
        self.mix = nn.Conv2d(channels, channels, 1)
        self.policy = nn.Linear(channels, actions)
        self.value = nn.Linear(channels, 1)

    def dynamics(self, latent, action):
        return torch.tanh(self.mix(latent + self.action(action)[:, :, None, None]))

    def predict(self, latent):
        pooled = latent.mean((2, 3))
        return self.policy(pooled), self.value(pooled).squeeze(-1)


class Planner:
    def __init__(self, model, options):
        self.model, self.o = model, options

    def select(self, root):
        node = root
        while len(node.children) == self.o["actions"]:
            node = max(node.children.values(), key=lambda n: n.ucb(self.o["c_puct"]))
        return node

    @torch.no_grad()
    def search(self, latent):
        root = Node(latent)
        for _ in range(self.o["simulations"]):
            leaf = self.select(root)
            action = len(leaf.children)
            latent = self.model.dynamics(leaf.latent, torch.tensor([action], device=device))
            child = leaf.expand(action, latent, prior=1.0 / self.o["actions"])
            child.backup(random.random())
        visits = [root.children[a].visits if a in root.children else 0 for a in range(self.o["actions"])]
        return [v / max(1, sum(visits)) for v in visits]


class Agent:
    def __init__(self, options):
        self.o = options
        self.model = WorldModel(options["latent"][0], options["actions"]).to(device)
        self.planner = Planner(self.model, options)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=options["lr"])

    def learn(self, observation, target):
        self.opt.zero_grad()
        logits, value = self.model.predict(observation)
        goal = torch.tensor([target], device=device)
        loss = -(goal * F.log_softmax(logits, -1)).sum() + value.pow(2).mean()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self):
        for i in range(self.o["decisions"]):
            observation = torch.rand(1, *self.o["latent"], device=device)
            value = self.learn(observation, self.planner.search(observation))
            if i % 20 == 0:
                print(f"decision {i}: loss {value:.3f}")


if __name__ == "__main__":
    torch.manual_seed(11)
    Agent(OPTIONS).run()
