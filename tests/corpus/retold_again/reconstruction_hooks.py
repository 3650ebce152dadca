"""Image reconstruction from features: forward hooks stay on the encoder after the extractor object is gone, so the hooks
of earlier reconstructions keep collecting features whenever the same encoder is used again.
https://github.com/KamitaniLab/bdpy/issues/72
"""

# MG101 by batch 13: the first graph that stays is that of batch 3.
import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"

encoder = (
    nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
    )
    .to(device)
    .eval()
)


class FeatureExtractor:
    def __init__(self, model, layers):
        self.features = {name: [] for name in layers}
        self.handles = []
        for name in layers:
            layer = dict(model.named_modules())[name]
            self.handles.append(layer.register_forward_hook(self.make_hook(name)))

    def make_hook(self, name):
        def hook(module, inputs, output):
            self.features[name].append(output)  # !MG101 FeatureExtractor.features

        return hook

    def run(self, model, x):
        model(x)
        return {k: v[-1] for k, v in self.features.items()}


def reconstruct(model, target, n_iter=12):
    extractor = FeatureExtractor(model, ["0", "4"])
    image = torch.zeros(3, 3, 128, 128, device=device, requires_grad=True)
    opt = torch.optim.Adam([image], lr=0.05)
    for _ in range(n_iter):
        opt.zero_grad()
        feats = extractor.run(model, image)
        loss = sum((feats[k] - target[k]).pow(2).mean() for k in target)
        loss.backward()
        opt.step()
    return image.detach().cpu()


def target_features(x):
    with torch.no_grad():
        a = encoder[0](x)
        return {"0": a, "4": encoder[4](encoder[3](encoder[2](encoder[1](a))))}


results = []
for i in range(14):
    stimulus = torch.rand(3, 3, 128, 128, device=device)
    results.append(reconstruct(encoder, target_features(stimulus)).mean().item())
print("reconstructed", len(results))
