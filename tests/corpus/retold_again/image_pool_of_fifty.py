"""Retold from junyanz/pytorch-CycleGAN-and-pix2pix (https://github.com/junyanz/pytorch-CycleGAN-and-pix2pix):
model object with set_input/forward/optimize_parameters, and an ImagePool of 50 earlier fakes (detached, bounded)."""

import itertools
import random
import torch
import torch.nn as nn


class ImagePool:
    def __init__(self, pool_size):
        self.pool_size = pool_size
        self.num_imgs = 0
        self.images = []

    def query(self, images):
        if self.pool_size == 0:
            return images
        return_images = []
        for image in images:
            image = torch.unsqueeze(image.data, 0)
            if self.num_imgs < self.pool_size:
                self.num_imgs += 1
                self.images.append(image)
                return_images.append(image)
            elif random.uniform(0, 1) > 0.5:
                random_id = random.randint(0, self.pool_size - 1)
                tmp = self.images[random_id].clone()
                self.images[random_id] = image
                return_images.append(tmp)
            else:
                return_images.append(image)
        return torch.cat(return_images, 0)


def define_G():
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 1, 3),
        nn.InstanceNorm2d(16),
        nn.ReLU(True),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.InstanceNorm2d(32),
        nn.ReLU(True),
        nn.Conv2d(32, 32, 3, 1, 1),
        nn.InstanceNorm2d(32),
        nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 3, 2, 1, 1),
        nn.ReLU(True),
        nn.Conv2d(16, 3, 7, 1, 3),
        nn.Tanh(),
    )


def define_D():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.InstanceNorm2d(32),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(32, 1, 4, 1, 1),
    )


class CycleGANModel:
    def __init__(self, device):
        self.device = device
        self.netG_A, self.netG_B = define_G().to(device), define_G().to(device)
        self.netD_A, self.netD_B = define_D().to(device), define_D().to(device)
        self.fake_A_pool, self.fake_B_pool = ImagePool(50), ImagePool(50)
        self.criterionGAN, self.criterionCycle, self.criterionIdt = nn.MSELoss(), nn.L1Loss(), nn.L1Loss()
        self.optimizer_G = torch.optim.Adam(
            itertools.chain(self.netG_A.parameters(), self.netG_B.parameters()), lr=2e-4, betas=(0.5, 0.999)
        )
        self.optimizer_D = torch.optim.Adam(
            itertools.chain(self.netD_A.parameters(), self.netD_B.parameters()), lr=2e-4, betas=(0.5, 0.999)
        )

    def set_input(self, input):
        self.real_A, self.real_B = input["A"].to(self.device), input["B"].to(self.device)

    def forward(self):
        self.fake_B = self.netG_A(self.real_A)
        self.rec_A = self.netG_B(self.fake_B)
        self.fake_A = self.netG_B(self.real_B)
        self.rec_B = self.netG_A(self.fake_A)

    def set_requires_grad(self, nets, requires_grad=False):
        for net in nets:
            for param in net.parameters():
                param.requires_grad = requires_grad

    def gan_loss(self, pred, real):
        return self.criterionGAN(pred, torch.full_like(pred, float(real)))

    def backward_D_basic(self, netD, real, fake):
        loss_D = (self.gan_loss(netD(real), True) + self.gan_loss(netD(fake.detach()), False)) * 0.5
        loss_D.backward()
        return loss_D

    def backward_G(self):
        self.loss_idt = (
            self.criterionIdt(self.netG_A(self.real_B), self.real_B)
            + self.criterionIdt(self.netG_B(self.real_A), self.real_A)
        ) * 5.0
        self.loss_gan = self.gan_loss(self.netD_A(self.fake_B), True) + self.gan_loss(self.netD_B(self.fake_A), True)
        self.loss_cycle = (
            self.criterionCycle(self.rec_A, self.real_A) + self.criterionCycle(self.rec_B, self.real_B)
        ) * 10
        self.loss_G = self.loss_gan + self.loss_cycle + self.loss_idt
        self.loss_G.backward()

    def optimize_parameters(self):
        self.forward()
        self.set_requires_grad([self.netD_A, self.netD_B], False)
        self.optimizer_G.zero_grad()
        self.backward_G()
        self.optimizer_G.step()
        self.set_requires_grad([self.netD_A, self.netD_B], True)
        self.optimizer_D.zero_grad()
        self.loss_D_A = self.backward_D_basic(self.netD_A, self.real_B, self.fake_B_pool.query(self.fake_B))
        self.loss_D_B = self.backward_D_basic(self.netD_B, self.real_A, self.fake_A_pool.query(self.fake_A))
        self.optimizer_D.step()

    def get_current_losses(self):
        return {n: float(getattr(self, "loss_" + n)) for n in ("G", "gan", "cycle", "idt", "D_A", "D_B")}


if __name__ == "__main__":
    model = CycleGANModel(torch.device("cuda:0" if torch.cuda.is_available() else "cpu"))
    for total_iters in range(50):
        model.set_input({"A": torch.rand(1, 3, 64, 64) * 2 - 1, "B": torch.rand(1, 3, 64, 64) * 2 - 1})
        model.optimize_parameters()
        if total_iters % 20 == 0:
            print(total_iters, model.get_current_losses())
