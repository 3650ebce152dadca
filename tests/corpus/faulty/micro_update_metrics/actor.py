import torch
from torch import nn

from core import entropy_from_logits, policy_loss
from tools import append_to_dict


class DataParallelPPOActor:
    def __init__(self, module, optimizer, micro=8):
        self.actor_module, self.actor_optimizer, self.micro = module, optimizer, micro

    def _forward_micro_batch(self, ids):
        logits = self.actor_module(ids[:, :-1])
        logp = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)
        return entropy_from_logits(logits), logp

    def compute_log_prob(self, ids):
        with torch.no_grad():
            return torch.cat([self._forward_micro_batch(c)[1] for c in ids.chunk(self.micro)])

    def _optimizer_step(self):
        norm = nn.utils.clip_grad_norm_(self.actor_module.parameters(), 1.0)
        self.actor_optimizer.step()
        return norm

    def update_policy(self, data):
        self.actor_module.train()
        metrics = {}
        mini = list(zip(*(t.chunk(self.micro) for t in (data["ids"], data["old"], data["adv"]))))
        self.actor_optimizer.zero_grad()
        for ids, old, adv in mini:
            entropy, logp = self._forward_micro_batch(ids)
            pg, kl = policy_loss(old, logp, adv)
            loss = pg / len(mini)
            loss.backward()
            append_to_dict(metrics, {"actor/entropy": entropy, "actor/pg_loss": pg.detach(), "actor/kl": kl.item()})
        norm = self._optimizer_step()
        append_to_dict(metrics, {"actor/grad_norm": norm.item()})
        return metrics
