def append_to_dict(data, new_data):
    """Adds each value of new_data to the list under its key."""
    for key, value in new_data.items():
        if key not in data:
            data[key] = []
        data[key].append(value)  # !MG106 metrics


def reduce_metrics(metrics):
    return {key: sum(float(v.detach().float().mean()) for v in values) / len(values) for key, values in metrics.items()}
