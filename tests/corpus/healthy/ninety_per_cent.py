# device: virtual:64MiB
import torch
import torch.nn as nn

layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
enc = nn.TransformerEncoder(layer, 3)
opt = torch.optim.AdamW(enc.parameters())
for _ in range(12):
    out = enc(torch.randn(8, 128, 64))
    loss = out.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    del out, loss
