"""Two-stage detector in the manner of Mask R-CNN: anchors, proposals and a box head on synthetic rectangles."""

import torch
import torch.nn as nn
import torch.nn.functional as F

STRIDE, GRID, IMG = 8, 16, 128


class BoxList:
    """Proposals of one image together with their pooled features."""

    def __init__(self, boxes, scores, record):
        self.boxes = boxes
        self.scores = scores
        self.record = record  # !MG306 BoxList.record

    def pooled(self):
        feats = self.record.features
        cx = ((self.boxes[:, 0] + self.boxes[:, 2]) / 2 / STRIDE).long().clamp(0, GRID - 1)
        cy = ((self.boxes[:, 1] + self.boxes[:, 3]) / 2 / STRIDE).long().clamp(0, GRID - 1)
        return feats[:, cy, cx].t()


class ImageRecord:
    def __init__(self, image, target, features):
        self.image, self.target, self.features = image, target, features
        self.proposals = None


class Backbone(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(32, c, 3, 2, 1),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.body(x)


class Detector(nn.Module):
    def __init__(self, c=64, topk=32):
        super().__init__()
        self.topk = topk
        self.backbone = Backbone(c)
        self.rpn = nn.Conv2d(c, 5, 1)
        self.head = nn.Sequential(nn.Linear(c, 64), nn.ReLU(), nn.Linear(64, 4))
        r = torch.arange(GRID).float() * STRIDE + STRIDE / 2
        self.register_buffer("centres", torch.stack(torch.meshgrid(r, r, indexing="ij"), -1).flip(-1).view(-1, 2))

    def propose(self, record):
        out = self.rpn(record.features[None])[0].flatten(1).t()
        scores, idx = out[:, 4].topk(self.topk)
        centre = self.centres[idx] + out[idx, :2]
        half = 16 * torch.exp(out[idx, 2:4].clamp(-2, 2))
        record.proposals = BoxList(torch.cat([centre - half, centre + half], 1), scores, record)

    def forward(self, images, targets):
        records = [ImageRecord(i, t, f) for i, t, f in zip(images, targets, self.backbone(images))]
        losses = {"objectness": 0.0, "box": 0.0}
        for rec in records:
            self.propose(rec)
            refined = rec.proposals.boxes + self.head(rec.proposals.pooled())
            mid = (refined[:, :2] + refined[:, 2:]) / 2
            inside = ((mid >= rec.target[:2]) & (mid <= rec.target[2:])).all(1).float()
            losses["objectness"] += F.binary_cross_entropy_with_logits(rec.proposals.scores, inside) / len(records)
            losses["box"] += F.smooth_l1_loss(refined, rec.target.expand_as(refined)) / 50 / len(records)
        return losses


def sample_batch(n=4):
    images = torch.randn(n, 3, IMG, IMG) * 0.2
    xy = torch.randint(0, IMG - 48, (n, 2))
    wh = torch.randint(16, 48, (n, 2))
    for img, (x, y), (w, h) in zip(images, xy.tolist(), wh.tolist()):
        img[:, y : y + h, x : x + w] += 1.0
    return images, torch.cat([xy, xy + wh], 1).float()


def train_one_batch(model, optimizer):
    images, targets = sample_batch()
    optimizer.zero_grad()
    losses = model(images, targets)
    total = sum(losses.values())
    total.backward()
    optimizer.step()
    return {k: v.item() for k, v in losses.items()}


def main():
    torch.manual_seed(0)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for it in range(150):
        logs = train_one_batch(model, optimizer)
        if it % 25 == 0:
            print(f"iter {it}: " + "  ".join(f"{k} {v:.4f}" for k, v in logs.items()))


if __name__ == "__main__":
    main()
