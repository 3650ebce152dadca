import torch
from losses import preference_loss, sequence_logps


class PairTrainer:
    def __init__(self, policy, reference):
        self.policy, self.reference = policy, reference
        self.optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)

    def loss_of(self, chosen, rejected):
        with torch.no_grad():
            ref_c, ref_r = sequence_logps(self.reference, chosen), sequence_logps(self.reference, rejected)
        both = sequence_logps(self.policy, torch.cat([chosen, rejected]))
        c, r = both.chunk(2)
        return preference_loss(c, r, ref_c, ref_r)

    def step(self, pairs):
        losses = []
        for chosen, rejected in pairs:
            losses.append(self.loss_of(chosen, rejected))  # !MG106 losses
        loss = torch.stack(losses).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()
