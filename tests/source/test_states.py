"""What counts as a state that is blended with each batch."""

import textwrap
from pathlib import Path

import pytest

from memguard.source.states import is_blended_state

CLASS = """class Loss:
    def update(self, z):
        {write}

    def step(self, z):
        {use}
        return z
"""
BLEND = "self.center = 0.9 * self.center + 0.1 * z.mean(0)"
USE = "d = (z - self.center.detach()).pow(2)"


@pytest.mark.parametrize(
    ("write", "use", "told"),
    [
        (BLEND, USE, True),
        ("self.center = self.center.lerp(z.mean(0), 0.1)", "d = torch.cdist(z, self.center)", True),
        ("self.center = torch.lerp(self.center, z.mean(0), 0.1)", "d = z @ self.center.detach().t()", True),
        (BLEND, "center = self.center.detach()\n        d = F.mse_loss(z, center)", True),
        (BLEND, "center = F.normalize(self.center).detach()\n        d = (z * center[y]).sum()", True),
        ("new = 0.9 * self.center + 0.1 * z\n        self.center = F.normalize(new)", USE, True),
        ("self.center = self.center + z.mean(0)", USE, False),
        (BLEND, "center = z - z.mean()\n        d = F.mse_loss(z, center)", False),
        ("new = 0.9 * self.center + 0.1 * z\n        self.center = F.normalize(new)", "print(self.center)", False),
        ("new = self.center + 0.1 * z\n        self.center = F.normalize(new)", USE, False),
        ("self.center = torch.cat([self.center, z])[-64:]", USE, False),
        (BLEND, "print(self.center)", False),
        (BLEND, "d = 2 * self.center", False),
        (BLEND, "d = self.center.mean()", False),
    ],
)
def test_a_moving_average_that_is_computed_with_is_a_state(tmp_path: Path, write: str, use: str, told: bool) -> None:
    """A sum, a queue, and what is only shown or scaled, are none."""
    file = tmp_path / "loss.py"
    file.write_text(CLASS.format(write=write, use=use))
    assert is_blended_state(str(file), 3 + write.count("\n"), "self.center") is told


@pytest.mark.parametrize(
    "use",
    [
        "with torch.no_grad(): d = z - self.center",
        "if self.training: pass\n        else: d = z - self.center",
    ],
)
def test_what_evaluation_alone_computes_does_not_count(tmp_path: Path, use: str) -> None:
    """The running mean of a normalisation is used there."""
    file = tmp_path / "loss.py"
    file.write_text(CLASS.format(write=BLEND, use=use))
    assert not is_blended_state(str(file), 3, "self.center")


LOOP = """centres = torch.zeros(9, 8)
for z, y in batches:
    d = {use}
    {write}
"""
MEAN = "centres = F.normalize(0.9 * centres + 0.1 * z, dim=1)"


@pytest.mark.parametrize("head", ["", "def train(batches):\n"])
@pytest.mark.parametrize(
    ("write", "use", "told"),
    [
        (MEAN, "z @ centres.detach().t()", True),
        (MEAN, "F.mse_loss(z, centres[y].detach())", True),
        ("mixed = centres.lerp(z, 0.1); centres = F.normalize(mixed)", "z - centres", True),
        ("mixed = m * centres + (1 - m) * z; centres = F.normalize(mixed)", "z - y", False),
        ("centres = centres + z", "z - centres.detach()", False),
        (MEAN, "z - y; print('centres', z.shape, centres)", False),
        (MEAN, "z - y; board.add_scalar('norm', centres.norm(), step)", False),
    ],
)
def test_a_variable_that_is_blended_is_one_too(tmp_path: Path, head: str, write: str, use: str, told: bool) -> None:
    """Of a function or of a script, and also where it is read without its graph; a sum or what is shown is none."""
    text = LOOP.format(write=write, use=use)
    file = tmp_path / "train.py"
    file.write_text(head + textwrap.indent(text, "    ") if head else text)
    assert is_blended_state(str(file), 4 + bool(head), "centres") is told
