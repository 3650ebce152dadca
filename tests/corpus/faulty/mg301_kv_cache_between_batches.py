# device: virtual:40MiB
# runs out of memory
import torch
from torch import nn


class Attn(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.k_cache, self.v_cache = None, None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        past = self.k_cache
        self.k_cache = k.detach() if past is None else torch.cat((past, k.detach()), 1)  # !MG301 Attn.k_cache
        a = q @ k.transpose(1, 2)
        return a.softmax(-1) @ v


attn = Attn()
opt = torch.optim.Adam(attn.parameters())
for step in range(300):
    y = attn(torch.randn(4, 32, 64))
    loss = y.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
