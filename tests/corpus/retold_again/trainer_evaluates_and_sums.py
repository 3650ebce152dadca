"""An evaluation of a trainer class that forgot no_grad and adds its losses up: both are told."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class MelPredictor(nn.Module):
    def __init__(self, phones=45, spk=10, mel=40, dim=128):
        super().__init__()
        self.phone = nn.Embedding(phones, dim)
        self.spk = nn.Embedding(spk, dim)
        self.convs = nn.ModuleList([nn.Conv1d(dim, dim, 5, padding=2) for _ in range(3)])
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(dim, mel)

    def forward(self, phones, spk):
        x = (self.phone(phones) + self.spk(spk).unsqueeze(1)).transpose(1, 2)
        for conv in self.convs:
            x = self.drop(F.relu(conv(x)))
        return self.out(x.transpose(1, 2))


class Experiment:
    def __init__(self):
        torch.manual_seed(4)
        self.model = MelPredictor()
        self.optim = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.train_set = self.make(24)
        self.valid_set = self.make(12)
        self.best = float("inf")

    def make(self, n):
        return [(torch.randint(0, 45, (8, 120)), torch.randint(0, 10, (8,)), torch.randn(8, 120, 40)) for _ in range(n)]

    def train(self):
        self.model.train()
        total = 0.0
        for phones, spk, mel in self.train_set:
            loss = F.l1_loss(self.model(phones, spk), mel)
            self.optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.optim.step()
            total += loss.item()
        return total / len(self.train_set)

    def evaluate(self):
        self.model.eval()
        total = 0
        for phones, spk, mel in self.valid_set:
            output = self.model(phones, spk)  # !MG201 MelPredictor
            loss = F.l1_loss(output, mel)
            total += loss  # !MG101 total
        return total.item() / len(self.valid_set)

    def run(self, epochs):
        for epoch in range(1, epochs + 1):
            train_loss = self.train()
            valid_loss = self.evaluate()
            flag = " *" if valid_loss < self.best else ""
            self.best = min(self.best, valid_loss)
            print(f"epoch {epoch}: train {train_loss:.3f} valid {valid_loss:.3f}{flag}")


if __name__ == "__main__":
    Experiment().run(2)
