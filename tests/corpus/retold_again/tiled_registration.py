"""Tiled deformable image registration: every patch of a large volume gets its own warp optimizer with smoothing."""

import torch
import torch.nn.functional as F
from torch import nn


def gaussian_1d(sigma, truncated=2):
    tail = int(sigma * truncated + 0.5)
    x = torch.arange(-tail, tail + 1, dtype=torch.float32)
    k = torch.exp(-0.5 * (x / sigma) ** 2)
    return k / k.sum()


def separable_filter(img, kernel):
    c = img.shape[1]
    for axis in range(3):
        shape = [1, 1, 1, 1, 1]
        shape[axis + 2] = -1
        pad = [0, 0, 0]
        pad[axis] = len(kernel) // 2
        img = F.conv3d(img, kernel.view(shape).expand(c, -1, -1, -1, -1), padding=pad, groups=c)
    return img


def get_smoothing_wrapper(optimizer):
    """The gradient lives in [B,H,W,D,3]; filters want channels first."""

    def wrapper(image, kernel):
        image = image.permute(*optimizer.permute_vtoimg)
        return separable_filter(image, kernel).permute(*optimizer.permute_imgtov)

    return wrapper


class WarpAdam:
    """Adam on a displacement field, gradients and field are smoothed."""

    def __init__(self, warp, lr, beta1=0.9, beta2=0.99, eps=1e-8, grad_sigma=1.0):
        self.warp, self.lr, self.beta1, self.beta2, self.eps = warp, lr, beta1, beta2, eps
        self.permute_vtoimg, self.permute_imgtov = (0, 4, 1, 2, 3), (0, 2, 3, 4, 1)
        self.exp_avg = torch.zeros_like(warp)
        self.exp_avg_sq = torch.zeros_like(warp)
        self.kernel = gaussian_1d(grad_sigma)
        self.step_t = 0
        self.smoothing_wrapper = get_smoothing_wrapper(self)  # !MG306 WarpAdam.smoothing_wrapper

    @torch.no_grad()
    def step(self):
        self.step_t += 1
        grad = self.smoothing_wrapper(self.warp.grad, self.kernel)
        self.exp_avg.mul_(self.beta1).add_(grad, alpha=1 - self.beta1)
        self.exp_avg_sq.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        denom = (self.exp_avg_sq / (1 - self.beta2**self.step_t)).sqrt().add_(self.eps)
        self.warp.addcdiv_(self.exp_avg / (1 - self.beta1**self.step_t), denom, value=-self.lr)

    def zero_grad(self):
        self.warp.grad = None


class DisplacementField(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.warp = nn.Parameter(torch.zeros(1, *shape, 3))
        self.register_buffer("grid", F.affine_grid(torch.eye(3, 4)[None], (1, 1, *shape), align_corners=True))

    def forward(self, moving):
        return F.grid_sample(moving, self.grid + self.warp, align_corners=True)


class GreedyRegistration:
    def __init__(self, iterations, lr):
        self.iterations, self.lr = iterations, lr

    def optimize(self, fixed, moving):
        field = DisplacementField(fixed.shape[2:])
        opt = WarpAdam(field.warp, self.lr)
        for _ in range(self.iterations):
            opt.zero_grad()
            loss = F.mse_loss(field(moving), fixed)
            loss.backward()
            opt.step()
        with torch.no_grad():
            return field(moving).clamp(0, 1), loss.item()


def patches(volume, size):
    for z in range(0, volume.shape[2], size):
        for y in range(0, volume.shape[3], size):
            for x in range(0, volume.shape[4], size):
                yield (slice(None), slice(None), slice(z, z + size), slice(y, y + size), slice(x, x + size))


def main():
    torch.manual_seed(0)
    size = 40
    fixed = F.interpolate(torch.rand(1, 1, 20, 20, 12), size=(160, 160, 80), mode="trilinear")
    moving = torch.roll(fixed, 1, dims=2)
    moved = torch.empty_like(moving)
    reg = GreedyRegistration(iterations=5, lr=0.01)
    for i, where in enumerate(patches(fixed, size)):
        moved[where], loss = reg.optimize(fixed[where], moving[where])
        if i % 8 == 0:
            print(f"patch {i:3d} loss {loss:.5f}")
    print("before", F.mse_loss(moving, fixed).item(), "after", F.mse_loss(moved, fixed).item())


if __name__ == "__main__":
    main()
