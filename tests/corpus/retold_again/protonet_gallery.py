"""Few-shot prototypical network; a gallery of one picture per class is kept for the nearest-class report."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def encoder(width=16):
    def conv(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2))

    return nn.Sequential(conv(3, width), conv(width, width), conv(width, width), nn.Flatten())


class EpisodeSampler:
    def __init__(self, classes=200, way=5, shot=5, query=10, size=32):
        g = torch.Generator().manual_seed(2)
        self.prototypes = torch.randn(classes, 3, 8, 8, generator=g)
        self.way, self.shot, self.query, self.size = way, shot, query, size

    def __call__(self):
        labels = torch.randperm(len(self.prototypes))[: self.way]
        base = F.interpolate(self.prototypes[labels], size=self.size)
        per = self.shot + self.query
        images = base[:, None] + 0.8 * torch.randn(self.way, per, 3, self.size, self.size)
        return labels.tolist(), images


class Gallery:
    """The latest example picture for each class seen."""

    def __init__(self):
        self.pictures = {}

    def remember(self, labels, images):
        for label, shots in zip(labels, images):
            self.pictures[label] = shots[0]  # !MG302 Gallery.pictures

    def closest(self, picture):
        names = list(self.pictures)
        dist = [(self.pictures[n] - picture).pow(2).mean().item() for n in names]
        return names[dist.index(min(dist))]


def episode_loss(net, images, shot):
    way, per = images.shape[:2]
    z = net(images.flatten(0, 1)).view(way, per, -1)
    proto = z[:, :shot].mean(1)
    query = z[:, shot:].flatten(0, 1)
    logits = -torch.cdist(query, proto).pow(2)
    target = torch.arange(way).repeat_interleave(per - shot)
    return F.cross_entropy(logits, target), (logits.argmax(1) == target).float().mean().item()


def train_episode(net, opt, sampler, gallery):
    labels, images = sampler()
    opt.zero_grad(set_to_none=True)
    loss, acc = episode_loss(net, images, sampler.shot)
    loss.backward()
    opt.step()
    gallery.remember(labels, images)
    return loss.item(), acc


def main():
    torch.manual_seed(0)
    sampler, gallery, net = EpisodeSampler(), Gallery(), encoder()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for ep in range(100):
        loss, acc = train_episode(net, opt, sampler, gallery)
        if ep % 20 == 0:
            labels, images = sampler()
            print(
                f"episode {ep} loss {loss:.3f} acc {acc:.2f} gallery {len(gallery.pictures)} "
                f"closest to class {labels[0]}: {gallery.closest(images[0, 1])}"
            )


if __name__ == "__main__":
    main()
