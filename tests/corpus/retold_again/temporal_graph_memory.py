# TGN-style: each node has a memory vector which is refreshed by the events of the batch
import torch
import torch.nn as nn

N_NODES, D, EVENTS, BATCHES = 4000, 64, 1024, 50


class NodeMemory(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * d + 8, 128), nn.ReLU(), nn.Linear(128, d))
        self.updater = nn.GRUCell(d, d)
        self.state = torch.zeros(n, d)

    def get(self, idx):
        return self.state[idx].detach()

    def update(self, idx, msg):
        new = self.updater(msg, self.get(idx))
        mask = torch.zeros(self.state.size(0), 1)
        mask[idx] = 1.0
        spread = torch.zeros_like(self.state).index_copy(0, idx, new)
        self.state = self.state * (1 - mask) + spread * mask  # !MG102 NodeMemory.state
        return new


class LinkPredictor(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * d, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, a, b):
        return self.net(torch.cat([a, b], 1)).squeeze(1)


def events(gen):
    for _ in range(BATCHES):
        src = torch.randint(0, N_NODES, (EVENTS,), generator=gen)
        dst = torch.randint(0, N_NODES, (EVENTS,), generator=gen)
        neg = torch.randint(0, N_NODES, (EVENTS,), generator=gen)
        yield src, dst, neg, torch.randn(EVENTS, 8, generator=gen)


def train():
    torch.manual_seed(0)
    memory, predictor = NodeMemory(N_NODES, D), LinkPredictor(D)
    params = list(memory.parameters()) + list(predictor.parameters())
    opt = torch.optim.Adam(params, lr=1e-3)
    bce = nn.BCEWithLogitsLoss()
    running = 0.0
    for i, (src, dst, neg, feat) in enumerate(events(torch.Generator().manual_seed(3))):
        opt.zero_grad()
        uniq, first = torch.unique(src, return_inverse=True)
        raw = memory.message(torch.cat([memory.get(src), memory.get(dst), feat], 1))
        msg = torch.zeros(len(uniq), D).index_add(0, first, raw)
        h_src = memory.update(uniq, msg)[first]
        pos = predictor(h_src, memory.get(dst))
        fake = predictor(h_src, memory.get(neg))
        loss = bce(pos, torch.ones_like(pos)) + bce(fake, torch.zeros_like(fake))
        loss.backward()
        opt.step()
        running = 0.9 * running + 0.1 * loss.item()
        if i % 10 == 0:
            print(f"batch {i:3d} loss {running:.4f}")


if __name__ == "__main__":
    train()
