"""With --init_from=resume the GPU runs out of memory, from scratch it does not.

https://github.com/karpathy/nanoGPT/issues/158 : train.py is all globals, `checkpoint` and `state_dict` "leak memory beyond
their intended usefulness", and the checkpoint is loaded onto the GPU (map_location=device).
"""

import os
import tempfile
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

out_dir = tempfile.mkdtemp()
init_from = "resume"
device = "cuda" if torch.cuda.is_available() else "cpu"
batch_size, block_size, max_iters = 4, 32, 36


@dataclass
class GPTConfig:
    vocab_size: int = 30000
    n_embd: int = 384
    n_layer: int = 1


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.h = nn.ModuleList([nn.GRU(config.n_embd, config.n_embd, batch_first=True) for _ in range(config.n_layer)])
        self.lm_head = nn.Linear(config.n_embd, 256)

    def forward(self, idx, targets):
        x = self.wte(idx)
        for block in self.h:
            x = x + block(x)[0]
        logits = self.lm_head(x)
        return F.cross_entropy(logits.view(-1, 256), targets.view(-1) % 256)


def earlier_run(path):
    torch.manual_seed(1337)
    args = asdict(GPTConfig())
    torch.save(
        {"model": GPT(GPTConfig(**args)).state_dict(), "model_args": args, "iter_num": 2000, "best_val_loss": 3.2}, path
    )


ckpt_path = os.path.join(out_dir, "ckpt.pt")
earlier_run(ckpt_path)

if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(ckpt_path, map_location=device)  # !MG312 checkpoint
    model = GPT(GPTConfig(**checkpoint["model_args"]))
    state_dict = checkpoint["model"]
    unwanted_prefix = "_orig_mod."
    for k, v in list(state_dict.items()):
        if k.startswith(unwanted_prefix):
            state_dict[k[len(unwanted_prefix) :]] = state_dict.pop(k)
    model.load_state_dict(state_dict)
    iter_num = checkpoint["iter_num"]
    best_val_loss = checkpoint["best_val_loss"]
model.to(device)
os.remove(ckpt_path)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

for local_iter in range(max_iters):
    X = torch.randint(0, 30000, (batch_size, block_size)).to(device)
    Y = torch.randint(0, 30000, (batch_size, block_size)).to(device)
    loss = model(X, Y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if local_iter % 15 == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}")
    iter_num += 1
