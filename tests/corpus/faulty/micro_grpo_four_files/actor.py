import torch
from torch import nn

import algos
from utils import append_to_dict


class DataParallelPPOActor:
    def __init__(self, module, optimizer, micro_batch_size=4):
        self.actor_module, self.actor_optimizer, self.micro = module, optimizer, micro_batch_size

    def _forward_micro_batch(self, ids, response_length, with_entropy):
        logits = self.actor_module(ids)[:, -response_length - 1 : -1]
        labels = ids[:, -response_length:]
        logp = logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
        return (algos.entropy_of(logits) if with_entropy else None), logp

    @torch.no_grad()
    def compute_log_prob(self, ids, response_length):
        return torch.cat([self._forward_micro_batch(part, response_length, False)[1] for part in ids.split(self.micro)])

    def update_policy(self, data, response_length):
        metrics = {}
        parts = list(zip(*(t.split(self.micro) for t in data)))
        self.actor_optimizer.zero_grad()
        for ids, old, ref, adv in parts:
            entropy, logp = self._forward_micro_batch(ids, response_length, True)
            pg = algos.policy_loss(logp, old, adv)
            kl = (ref - logp).exp() - (ref - logp) - 1
            loss = (pg + 0.01 * kl).mean() / len(parts)
            loss.backward()
            append_to_dict(metrics, {"actor/entropy": entropy, "actor/kl": kl, "actor/pg_loss": pg})
        nn.utils.clip_grad_norm_(self.actor_module.parameters(), 1.0)
        self.actor_optimizer.step()
        return metrics
