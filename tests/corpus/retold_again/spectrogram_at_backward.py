"""PyTorch FAQ: "Don't hold onto tensors and variables you don't need ... the scopes of locals can be larger than you expect": an intermediate
remains alive while the later, most expensive call of the same function runs, though nobody reads it again.
https://pytorch.org/docs/master/notes/faq.html
"""

import torch
from torch import nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


def stft_like(wave, frame=512, hop=64):
    frames = wave.unfold(0, frame, hop)
    return torch.fft.rfft(frames, dim=-1).abs()


class Gate(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, h):
        return h + F.gelu(h * self.w + self.b)


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(40, 64)
        self.mid = nn.Sequential(*[Gate(64) for _ in range(5)])
        self.out = nn.Linear(64, 30)

    def forward(self, mel):
        return self.out(self.mid(torch.tanh(self.lin(mel))))


def training_step(model, wave, target, fbank):
    spec = torch.stack([stft_like(w) for w in wave])  # !MG304 spec
    noise_floor = spec.mean().item()
    mel = torch.log1p((spec - noise_floor).clamp(min=0) @ fbank)
    logits = model(mel)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
    loss.backward()
    return loss.item()


def main():
    torch.manual_seed(0)
    model = Recognizer().to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    fbank = torch.rand(257, 40, device=device)
    for step in range(20):
        wave = torch.randn(14, 160000, device=device)
        frames = (160000 - 512) // 64 + 1
        target = torch.randint(0, 30, (14, frames), device=device)
        opt.zero_grad()
        loss = training_step(model, wave, target, fbank)
        opt.step()
        if step % 10 == 0:
            print(step, loss)


if __name__ == "__main__":
    main()
