import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, d=96, depth=4):
        super().__init__()
        self.emb = nn.Embedding(500, d)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)) for _ in range(depth)
        )
        self.out = nn.Linear(d, 500)

    def forward(self, ids):
        h = self.emb(ids)
        for layer in self.layers:
            h = h + checkpoint(layer, h, use_reentrant=False)
        return self.out(h)


class Trainer:
    def __init__(self, accumulate=4):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = Net().to(self.device)
        self.opt = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.accumulate = accumulate

    def fit(self, steps):
        total = torch.zeros((), device=self.device)
        self.opt.zero_grad(set_to_none=True)
        for i in range(steps):
            ids = torch.randint(0, 500, (4, 32), device=self.device)
            with torch.autocast(self.device, dtype=torch.bfloat16):
                logits = self.model(ids)
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            (loss / self.accumulate).backward()
            total += loss.detach()
            if (i + 1) % self.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                self.opt.zero_grad(set_to_none=True)
        return (total / steps).item()


torch.manual_seed(0)
print("mean loss", Trainer().fit(64))
