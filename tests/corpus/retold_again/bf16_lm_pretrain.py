"""Small causal language model trained in bfloat16 autocast."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalLM(nn.Module):
    def __init__(self, vocab, dim=64, layers=1, ctx=64):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(ctx, dim)
        block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(ctx))

    def forward(self, ids):
        t = ids.shape[1]
        h = self.tok(ids) + self.pos.weight[:t]
        return self.lm_head(self.blocks(h, mask=self.mask[:t, :t]))


def lm_loss(logits, labels):
    logits = logits.float()  # !MG310 logits
    target = F.pad(labels[:, 1:], (0, 1), value=-100)
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def training_step(model, optimizer, ids):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
    loss = lm_loss(logits, ids)
    loss.backward()
    optimizer.step()
    return loss.item()


def main(args):
    torch.manual_seed(args.seed)
    model = CausalLM(args.vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(args.steps):
        ids = torch.randint(0, args.vocab, (args.batch, 48)).sort(-1).values
        loss = training_step(model, optimizer, ids)
        if step % 5 == 0:
            torch.cuda.empty_cache()  # !MG403 -
        if step % 10 == 0:
            print(f"step {step:3d} loss {loss:.3f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=4000)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--steps", type=int, default=40)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
