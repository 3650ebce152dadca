# device: virtual:256MiB
"""Federated averaging simulated in one process: the server remembers every client's weights of every round."""

import copy
import random

import torch
from torch import nn


class Client:
    def __init__(self, cid, n=96):
        self.cid = cid
        self.x, self.y = torch.randn(n, 128), torch.randint(0, 10, (n,))

    def train(self, weights, epochs=1):
        model = build()
        model.load_state_dict(weights)
        opt = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(epochs):
            for xb, yb in zip(self.x.split(32), self.y.split(32)):
                opt.zero_grad()
                nn.functional.cross_entropy(model(xb), yb).backward()
                opt.step()
        return model.state_dict()


def build():
    return nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


class Server:
    def __init__(self, clients):
        self.clients, self.model = clients, build()
        self.received = []

    def round(self, r):
        chosen = random.sample(self.clients, 4)
        updates = []
        for c in chosen:
            updates.append(c.train(copy.deepcopy(self.model.state_dict())))
        self.received.append(updates)  # !MG308 Server.received
        avg = {k: torch.stack([u[k] for u in updates]).mean(0) for k in updates[0]}
        self.model.load_state_dict(avg)


server = Server([Client(i) for i in range(10)])
for r in range(8):
    server.round(r)
print(len(server.received))
