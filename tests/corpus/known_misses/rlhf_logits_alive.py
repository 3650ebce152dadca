"""PPO fine-tuning of a tiny language model against a reward function with a KL penalty to a reference model."""
# A known miss: the ten passes that show it are too few among 250 batches, of which only some are sampled.

import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab, dim=64, ctx=64):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(ctx, dim)
        self.block = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True)
        self.lm_head, self.value_head = nn.Linear(dim, vocab, bias=False), nn.Linear(dim, 1)

    def hidden(self, ids):
        t = ids.size(1)
        mask = torch.full((t, t), float("-inf")).triu(1)
        return self.block(self.tok(ids) + self.pos.weight[:t], src_mask=mask)

    def forward(self, ids):
        return self.lm_head(self.hidden(ids))

    def with_value(self, ids):
        h = self.hidden(ids)
        return self.lm_head(h), self.value_head(h).squeeze(-1)


def logprobs_from_logits(logits, labels):
    return -F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)


class PPOTrainer:
    def __init__(self, args):
        self.args = args
        self.policy = TinyLM(args.vocab)
        self.ref = copy.deepcopy(self.policy).requires_grad_(False).eval()
        self.optim = torch.optim.Adam(self.policy.parameters(), 3e-4)

    @torch.no_grad()
    def generate(self, prompts):
        ids = prompts
        for _ in range(self.args.response):
            logits = self.policy.lm_head(self.policy.hidden(ids)[:, -1])
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
        return ids

    @torch.no_grad()
    def make_experience(self, ids):
        labels = ids[:, 1:]
        logits, values = self.policy.with_value(ids[:, :-1])  # !MG304 logits
        old_logp = logprobs_from_logits(logits, labels)
        ref_logits = self.ref(ids[:, :-1])
        ref_logp = logprobs_from_logits(ref_logits, labels)
        rewards = -self.args.kl_coef * (old_logp - ref_logp)
        rewards[:, -1] += (ids % 2 == 0).float().mean(1)
        returns = rewards.flip(1).cumsum(1).flip(1)
        return old_logp, returns - values, returns

    def update(self, ids, old_logp, adv, returns):
        losses = []
        for mb in torch.randperm(len(ids)).split(self.args.minibatch):
            losses.append(self.minibatch_step(ids[mb], old_logp[mb], adv[mb], returns[mb]))
        return sum(losses) / len(losses)

    def minibatch_step(self, ids, old_logp, adv, returns):
        logits, values = self.policy.with_value(ids[:, :-1])
        ratio = (logprobs_from_logits(logits, ids[:, 1:]) - old_logp).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = pg + 0.1 * F.mse_loss(values, returns)
        loss.backward()
        self.optim.step()
        self.optim.zero_grad(set_to_none=True)
        return loss.item()

    def step(self, prompts):
        ids = self.generate(prompts)
        old_logp, adv, returns = self.make_experience(ids)
        return self.update(ids, old_logp, adv, returns), returns[:, 0].mean().item()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=4000)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--minibatch", type=int, default=4)
    ap.add_argument("--response", type=int, default=16)
    ap.add_argument("--kl-coef", type=float, default=0.05)
    ap.add_argument("--iters", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(0)
    trainer = PPOTrainer(args)
    for it in range(args.iters):
        loss, score = trainer.step(torch.randint(args.vocab, (args.batch, 8)))
        print(f"iter {it} loss {loss:.4f} return {score:.4f}")
