import torch


def policy_loss(old, new, adv, eps=0.2):
    ratio = (new - old).exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - eps, 1 + eps) * adv).mean(), (old - new).mean()


def entropy_from_logits(logits):
    p = torch.softmax(logits, -1)
    return torch.logsumexp(logits, -1) - (p * logits).sum(-1)
