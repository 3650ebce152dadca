"""Evaluation helpers."""


def evaluate(model, loader):
    model.eval()
    hits = total = 0
    for images, labels in loader:
        scores = model(images)  # !MG201 Sequential
        hits += (scores.argmax(1) == labels).sum().item()
        total += len(labels)
    return hits / total
