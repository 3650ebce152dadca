"""Trains a tiny mixture-of-experts language model on random token sequences and reports the router's entropy."""

# device: virtual:256MiB
import argparse

import torch
from torch import nn
import torch.nn.functional as F


class MoEBlock(nn.Module):
    def __init__(self, dim, n_experts, decay=0.95):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.router = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim)) for _ in range(n_experts)
        )
        self.decay = decay
        self.router_entropy = 0.0

    def forward(self, x):
        h = self.norm(x)
        probs = self.router(h).softmax(-1)
        if self.training:
            self._track(probs)
        weight, index = probs.max(-1)
        out = torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            chosen = index == i
            if chosen.any():
                out[chosen] = expert(h[chosen]) * weight[chosen].unsqueeze(-1)
        return x + out

    def _track(self, probs):
        entropy = -(probs * probs.clamp_min(1e-9).log()).sum(-1).mean()
        self.router_entropy = self.decay * self.router_entropy + (1 - self.decay) * entropy  # !MG101 MoEBlock.router_entropy


class MoELM(nn.Module):
    def __init__(self, vocab, dim, n_experts, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.blocks = nn.ModuleList(MoEBlock(dim, n_experts) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x, _ = self.mix(self.embed(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train_step(model, opt, tokens):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    return loss.item()


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    losses = []
    for tokens in batches:
        logits = model(tokens[:, :-1])
        losses.append(F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item())
    model.train()
    return sum(losses) / len(losses)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--seq-len", type=int, default=65)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = MoELM(vocab=128, dim=48, n_experts=16, depth=3)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    val = [torch.randint(0, 128, (args.batch_size, args.seq_len)) for _ in range(3)]
    for epoch in range(args.epochs):
        running = 0.0
        for _ in range(args.steps):
            running += train_step(model, opt, torch.randint(0, 128, (args.batch_size, args.seq_len)))
        ent = [f"{float(b.router_entropy):.3f}" for b in model.blocks]
        print(f"epoch {epoch} train {running / args.steps:.3f} val {evaluate(model, val):.3f} entropy {ent}")


if __name__ == "__main__":
    main()
