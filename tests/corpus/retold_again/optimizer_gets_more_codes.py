"""GPU memory rose steadily though no loss and no output is kept: the trainer itself holds more with every batch. Here an
auto-decoder adds the codes of each new batch of shapes to the optimizer and never takes them out again.
https://github.com/pytorch/pytorch/issues/17568
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
CODE = 512


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(CODE, 96)
        self.out = nn.Linear(96, 48)

    def forward(self, z):
        return self.out(torch.relu(self.lin(z)))


class ShapeStream:
    """Every shape is seen once."""

    def __init__(self, n, batch):
        self.n, self.batch = n, batch

    def __len__(self):
        return self.n

    def __iter__(self):
        for _ in range(self.n):
            yield torch.randn(self.batch, 48)


class CodeOptimizer:
    def __init__(self, decoder):
        self.opt = torch.optim.Adam(decoder.parameters(), 1e-3)

    def codes_for(self, n):
        codes = nn.Parameter(0.01 * torch.randn(n, CODE, device=device))
        self.opt.add_param_group({"params": [codes], "lr": 1e-2})  # !MG501 CodeOptimizer.opt
        return codes


class AutoDecoderTrainer:
    def __init__(self, stream, max_steps):
        self.decoder = Decoder().to(device)
        self.codes = CodeOptimizer(self.decoder)
        self.stream, self.max_steps = stream, max_steps

    def fit_batch(self, sdf, inner=2):
        z = self.codes.codes_for(len(sdf))
        for _ in range(inner):
            self.codes.opt.zero_grad()
            loss = (self.decoder(z) - sdf).abs().mean() + 1e-4 * z.square().mean()
            loss.backward()
            self.codes.opt.step()
        return loss.item()

    def run(self):
        for step, sdf in enumerate(self.stream):
            value = self.fit_batch(sdf.to(device))
            if step % 40 == 0:
                print(f"{step}/{len(self.stream)}", value)
            if step + 1 == self.max_steps:
                break


if __name__ == "__main__":
    AutoDecoderTrainer(ShapeStream(400, 768), max_steps=110).run()
