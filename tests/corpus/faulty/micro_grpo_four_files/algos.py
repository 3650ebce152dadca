import torch


def grpo_advantages(rewards, group):
    r = rewards.view(-1, group)
    return ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).flatten()


def policy_loss(logp, old, adv, eps=0.2):
    ratio = (logp - old).exp()
    return -torch.min(ratio * adv[:, None], ratio.clamp(1 - eps, 1 + eps) * adv[:, None])


def entropy_of(logits):
    p = logits.softmax(-1)
    return torch.logsumexp(logits, -1) - (p * logits).sum(-1)
