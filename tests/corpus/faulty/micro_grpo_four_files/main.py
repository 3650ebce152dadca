# A GRPO project in four files: entropies are computed for the metrics alone, and kept with their graphs.
# device: virtual:256MiB
import torch
from torch import nn

import algos
from actor import DataParallelPPOActor
from utils import reduce_metrics

VOCAB, GROUP, PROMPT, RESPONSE = 1500, 4, 8, 16


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 64)
        self.rnn = nn.GRU(64, 64, batch_first=True)
        self.head = nn.Linear(64, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


@torch.no_grad()
def generate(model, prompts):
    ids = prompts
    for _ in range(RESPONSE):
        ids = torch.cat([ids, torch.multinomial(model(ids)[:, -1].softmax(-1), 1)], 1)
    return ids


torch.manual_seed(0)
policy, reference = LM(), LM().requires_grad_(False).eval()
reference.load_state_dict(policy.state_dict())
actor = DataParallelPPOActor(policy, torch.optim.AdamW(policy.parameters(), lr=1e-3))
ref = DataParallelPPOActor(reference, None)
for step in range(5):
    ids = generate(policy, torch.randint(0, VOCAB, (8, PROMPT)).repeat_interleave(GROUP, 0))
    old, ref_logp = actor.compute_log_prob(ids, RESPONSE), ref.compute_log_prob(ids, RESPONSE)
    adv = algos.grpo_advantages((ids[:, PROMPT:] % 7 == 0).float().mean(1), GROUP)
    metrics = actor.update_policy((ids, old, ref_logp, adv), RESPONSE)
    print(step, reduce_metrics(metrics))
