# A known miss: the variable is needed no more in the middle of an evaluation; variables are asked at steps and backwards.
"""Mask transformer: validation needs much more memory than training; the predicted masks are resized to the image size and the
post-processing keeps tensor after tensor of that shape in its locals.
https://github.com/lightly-ai/lightly-train/issues/941
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
Q, C = 100, 8


class MaskModel(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.stem = nn.Conv2d(3, d, 8, stride=8)
        self.q = nn.Parameter(torch.randn(Q, d))
        self.cls = nn.Linear(d, C)

    def forward(self, img):
        f = F.gelu(self.stem(img))
        return torch.einsum("qd,bdhw->bqhw", self.q, f), self.cls(self.q).expand(len(img), -1, -1)


def get_labels_masks_scores(mask_logits, class_logits, size):
    resized = F.interpolate(mask_logits, size, mode="nearest")  # !MG304 resized
    probs = resized.sigmoid()
    binary = (probs > 0.5).to(probs.dtype)
    area = binary.sum((2, 3)) + 1e-6
    quality = (probs * binary).sum((2, 3)) / area
    scores, labels = class_logits.softmax(-1).max(-1)
    return labels, binary.amax(1), scores * quality


def train_step(model, opt):
    img = torch.randn(2, 3, 128, 128).to(device)
    target = (torch.rand(2, Q, 16, 16) > 0.5).float().to(device)
    opt.zero_grad()
    masks, classes = model(img)
    loss = F.binary_cross_entropy_with_logits(masks, target) + classes.logsumexp(-1).mean()
    loss.backward()
    opt.step()
    return loss.item()


@torch.no_grad()
def validate(model, images=3):
    total = 0.0
    for _ in range(images):
        img = torch.randn(1, 3, 416, 416).to(device)
        masks, classes = model(img)
        labels, covered, scores = get_labels_masks_scores(masks, classes, (416, 416))
        total += covered.mean().item() + scores.mean().item()
    return total / images


def main():
    torch.manual_seed(0)
    model = MaskModel().to(device)
    opt = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(3):
        for _ in range(20):
            loss = train_step(model, opt)
        print(epoch, loss, validate(model))


main()
