# A known miss: each client's copy is called in one turn alone; that memory grew is told, without a name.
"""Federated learning simulation: the server deep-copies the model for each client, and with dozens of clients and a
bigger model the GPU memory explodes. (Answer: pack the models on the CPU, or let the users train one after the
other without keeping the copies.)
https://github.com/WwZzz/easyFL/issues/44
"""

import copy

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_model():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )


class Client:
    def __init__(self, cid, batches=2):
        self.cid = cid
        g = torch.Generator().manual_seed(cid)
        self.data = [
            (torch.randn(32, 1, 28, 28, generator=g), torch.randint(0, 10, (32,), generator=g)) for _ in range(batches)
        ]
        self.model = None

    def unpack(self, package):
        self.model = copy.deepcopy(package["model"])  # !MG308 Client.model

    def reply(self):
        opt = torch.optim.SGD(self.model.parameters(), lr=0.05)
        for x, y in self.data:
            opt.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(self.model(x.to(device)), y.to(device)).backward()
            opt.step()
        opt.zero_grad(set_to_none=True)
        return len(self.data)


class Server:
    def __init__(self, n_clients=24):
        self.model = make_model().to(device)
        self.clients = [Client(i) for i in range(n_clients)]

    def pack(self):
        return {"model": self.model}

    @torch.no_grad()
    def aggregate(self, selected, weights):
        total = sum(weights)
        for name, p in self.model.named_parameters():
            p.zero_()
            for c, w in zip(selected, weights):
                p.add_(c.model.get_parameter(name), alpha=w / total)

    def run(self, rounds=6, per_round=8):
        for r in range(rounds):
            selected = [self.clients[(r * per_round + k) % len(self.clients)] for k in range(per_round)]
            weights = []
            for client in selected:
                client.unpack(self.pack())
                weights.append(client.reply())
            self.aggregate(selected, weights)
            print("round", r, "clients", [c.cid for c in selected])


if __name__ == "__main__":
    torch.manual_seed(0)
    Server().run()
