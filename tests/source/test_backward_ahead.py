"""Where a statement's value goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.source.backward_ahead import Fate, fate_of

BACKWARD, RETURNED, STORED, NEITHER = Fate.BACKWARD, Fate.RETURNED, Fate.STORED, Fate.NEITHER

PROGRAMS = {
    "loss_of(here(x)).backward()": BACKWARD,
    "opt.zero_grad(); here(x).sum().backward()": BACKWARD,
    "out = here(x)\nloss = ce(out, y)\nloss.backward()": BACKWARD,
    "out = here(x)\nwith autocast():\n    loss = ce(out, y)\nscaler.scale(loss).backward()": BACKWARD,
    "out = here(x)\nif good:\n    self.manual_backward(out.mean())": BACKWARD,
    "out, aux = here(x)\ngrads = torch.autograd.grad(aux.sum(), weights)": BACKWARD,
    "total = 0\nfor x in data:\n    total += here(x)\n    print(total)\ntotal.backward()": NEITHER,
    "loss = here(x)\nloss += penalty()\nloss.backward()": BACKWARD,
    "self.loss = here(x)\nself.loss.backward()": BACKWARD,
    "parts = {}\nparts['a'] = here(x)\nsum(parts.values()).backward()": BACKWARD,
    "out = here(x)\nout = other(x)\nout.backward()": NEITHER,
    "if step % 100 == 0:\n    print(here(x))\nloss = model(x).mean()\nloss.backward()": NEITHER,
    "scores = here(x)\nfor x in data:\n    loss = model(x)\n    loss.backward()": NEITHER,
    "def f():\n    return ce(here(x), y)": RETURNED,
    "def f():\n    loss = ce(here(x), y)\n    log(loss)\n    return loss": RETURNED,
    "def f():\n    loss = here(x)\n    return loss.item() if ok else None": NEITHER,
    "def f():\n    loss = here(x)\n    return 1": NEITHER,
    "def f():\n    yield here(x)": RETURNED,
    "for out in here(x):\n    out.backward()": NEITHER,
    "def f():\n    out = here(x)\n    def g():\n        out.backward()": NEITHER,
    "here(": NEITHER,
    "t = here(x).detach()\nloss = mse(model(x), t)\nloss.backward()": NEITHER,
    "t = here(x)\nloss = mse(model(x), t.detach())\nloss.backward()": NEITHER,
    "t = here(x)\nloss = mse(model(x), t.argmax(1))\nloss.backward()": NEITHER,
    "def f():\n    return here(x).sum().item()": NEITHER,
    "def f():\n    a = here(x)\n    kept.append(a.requires_grad)\n    return model(x) + a.detach()": NEITHER,
    "metric.update(here(x), y)": NEITHER,
    "self.clean = here(x)": STORED,
    "def f(self):\n    out = here(x)\n    self.out['clean'] = out": STORED,
    "outs.append(here(x))": STORED,
    "add(here(x))": STORED,
    "clean = here(x)\nadd(ce(clean, y))": STORED,
    "print(here(x))": NEITHER,
    "losses.append(here(x).item())": NEITHER,
    "total += ce(here(x), y).item()": NEITHER,
    "outs.append(here(x))\nsum(outs).backward()": STORED,
}


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_value_is_followed_to_the_backward(text: str, tmp_path: Path) -> None:
    """By names, in the same turn of the loop; what is returned is for the caller to say."""
    path = tmp_path / "program.py"
    path.write_text(text)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if "here(" in content)
    assert fate_of(str(path), line) is PROGRAMS[text]


def test_what_has_no_file_goes_nowhere() -> None:
    """Text that was typed in or executed cannot be read."""
    assert fate_of("<stdin>", 1) is NEITHER
