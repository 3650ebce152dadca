import torch


def append_to_dict(data, new):
    for key, value in new.items():
        if key not in data:
            data[key] = []
        data[key].append(value)  # !MG106 metrics


def reduce_metrics(metrics):
    return {k: float(torch.stack([torch.as_tensor(v).detach().float().mean() for v in vs]).mean()) for k, vs in metrics.items()}
