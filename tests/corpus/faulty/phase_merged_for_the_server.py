# device: virtual:256MiB
# LoRA: weights merged for the roll-out server are sent once, and stay beside the base weights while the policy trains.
import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, n, m, r=8):
        super().__init__()
        self.base = nn.Linear(n, m).requires_grad_(False)
        self.A, self.B = nn.Parameter(torch.randn(r, n) * 0.02), nn.Parameter(torch.zeros(m, r))

    def forward(self, x):
        return self.base(x) + x @ self.A.t() @ self.B.t()

    def merged(self):
        return self.base.weight.detach() + (self.B @ self.A).detach()


class Server:
    def load_weights(self, named):
        self.checksum = sum(w.double().mean().item() for _, w in named)


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(*[layer for _ in range(6) for layer in (LoRALinear(1024, 1024), nn.GELU())])
        self.optimizer = torch.optim.AdamW([p for p in self.model.parameters() if p.requires_grad], lr=1e-3)
        self.server = Server()
        self.synced = None

    def sync(self):
        state = {}
        for name, module in self.model.named_modules():
            if isinstance(module, LoRALinear):
                state[name + ".weight"] = module.merged()
        self.server.load_weights(state.items())
        self.synced = state  # !MG313 Trainer.synced

    def update(self, x, y):
        for a, b in zip(x.chunk(4), y.chunk(4)):
            (nn.functional.mse_loss(self.model(a), b) / 4).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


torch.manual_seed(0)
trainer = Trainer()
for step in range(6):
    trainer.sync()
    for _ in range(2):
        trainer.update(torch.randn(256, 1024), torch.randn(256, 1024))
    print("step", step, flush=True)
