import torch.nn.functional as F


def sequence_logps(model, ids):
    return model(ids[:, :-1]).log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)


def preference_loss(policy_c, policy_r, ref_c, ref_r, beta=0.1):
    return -F.logsigmoid(beta * ((policy_c - policy_r) - (ref_c - ref_r))).mean()
