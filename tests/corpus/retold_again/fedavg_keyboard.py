"""Federated averaging of a next-word keyboard model over simulated phones."""

import argparse
import copy
import random

import torch
from torch import nn
import torch.nn.functional as F


class KeyboardModel(nn.Module):
    def __init__(self, vocab=600, dim=64, hidden=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


class Phone:
    def __init__(self, ident, vocab, sentences=48, length=12):
        g = torch.Generator().manual_seed(ident)
        start = torch.randint(0, vocab, (sentences, 1), generator=g)
        self.text = (start + torch.arange(length + 1) * (1 + ident % 5)) % vocab

    def local_update(self, model, lr, batch=12):
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        total = 0.0
        for rows in torch.randperm(len(self.text)).split(batch):
            opt.zero_grad()
            logits = model(self.text[rows, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), self.text[rows, 1:].flatten())
            loss.backward()
            opt.step()
            total += loss.item() * len(rows)
        opt.zero_grad()
        return total / len(self.text)


class Server:
    def __init__(self, args):
        self.args = args
        self.model = KeyboardModel(args.vocab)
        self.phones = [Phone(i, args.vocab) for i in range(args.phones)]
        self.client_models = {}

    def round(self, number):
        cohort = random.sample(range(len(self.phones)), self.args.cohort)
        losses = []
        average = {k: torch.zeros_like(v) for k, v in self.model.state_dict().items()}
        for ident in cohort:
            local = copy.deepcopy(self.model)
            losses.append(self.phones[ident].local_update(local, self.args.lr))
            for k, v in local.state_dict().items():
                average[k] += v / len(cohort)
            self.client_models[(number, ident)] = local  # !MG308 Server.client_models
        self.model.load_state_dict(average)
        return sum(losses) / len(losses)

    @torch.no_grad()
    def evaluate(self):
        text = self.phones[0].text
        pred = self.model(text[:, :-1]).argmax(-1)
        return (pred == text[:, 1:]).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--phones", type=int, default=20)
    p.add_argument("--cohort", type=int, default=5)
    p.add_argument("--vocab", type=int, default=600)
    p.add_argument("--lr", type=float, default=0.5)
    args = p.parse_args()
    torch.manual_seed(0)
    random.seed(0)
    server = Server(args)
    for r in range(args.rounds):
        loss = server.round(r)
        if r % 2 == 1:
            print(
                f"round {r}: loss {loss:.3f} acc {server.evaluate():.3f} clients seen "
                f"{len({i for _, i in server.client_models})}"
            )


if __name__ == "__main__":
    main()
