"""Where a statement's value goes."""

from __future__ import annotations

import linecache
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
    "total = 0\nfor x in data:\n    total += here(x)\n    print(total)\ntotal.backward()": BACKWARD,
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
    "for out in here(x):\n    out.backward()": BACKWARD,
    "def f():\n    out = here(x)\n    def g():\n        out.backward()": BACKWARD,
    "here(": STORED,
    "t = here(x).detach()\nloss = mse(model(x), t)\nloss.backward()": NEITHER,
    "t = here(x)\nloss = mse(model(x), t.detach())\nloss.backward()": NEITHER,
    "t = here(x)\nloss = mse(model(x), t.argmax(1))\nloss.backward()": NEITHER,
    "def f():\n    return here(x).sum().item()": NEITHER,
    "def f():\n    a = here(x)\n    kept.append(a.requires_grad)\n    return model(x) + a.detach()": NEITHER,
    "metric.update(here(x), y)": NEITHER,
    "functional.mse_loss(here(x), y)": NEITHER,
    "torch.autograd.backward(here(x).sum())": BACKWARD,
    "self.clean = here(x)": STORED,
    "def f(self):\n    out = here(x)\n    self.out['clean'] = out": STORED,
    "outs.append(here(x))": STORED,
    "add(here(x))": STORED,
    "clean = here(x)\nadd(ce(clean, y))": STORED,
    "print(here(x))": NEITHER,
    "losses.append(here(x).item())": NEITHER,
    "total += ce(here(x), y).item()": NEITHER,
    "outs.append(here(x))\nsum(outs).backward()": BACKWARD,
    "def f():\n    for x in data:\n        yield here(x), x": RETURNED,
    "def f():\n    yield here(x).item()": NEITHER,
    "def f():\n    yield here(x).item(), len(x)": NEITHER,
    "def f():\n    loss = here(x)\n    yield loss\n    loss.backward()": BACKWARD,
    "for out, y in here(x):\n    total += ce(out, y).item()": NEITHER,
    "for out, y in here(x):\n    outs.append(out)": STORED,
    "while (out := here(x)) is not None:\n    out.backward()": BACKWARD,
    "with here(x) as loss:\n    loss.backward()": BACKWARD,
    "with here(x) as loss:\n    print(loss)": NEITHER,
    "outs = [here(x) for x in data]\nfor out in outs:\n    out.backward()": BACKWARD,
    "outs = [here(x) for x in data]\nprint(torch.stack(outs).mean())": NEITHER,
    "for x in data:\n    if old is not None:\n        (old - 1).backward()\n    old = here(x)": BACKWARD,
    "for x in data:\n    if a:\n        b = here(x)\n        continue\n    b = model(x)\n    b.backward()": NEITHER,
    "def f():\n    out = here(x)\n    if bad:\n        return None\n    out.backward()": BACKWARD,
    "def f():\n    if early:\n        return here(x)\n    out = model(x)\n    out.backward()": RETURNED,
    "try:\n    out = here(x)\nfinally:\n    pass\nout.backward()": BACKWARD,
    "try:\n    out = here(x)\nexcept ValueError:\n    pass\nelse:\n    out.backward()": BACKWARD,
    "match x:\n    case 1:\n        out = here(x)\n    case _:\n        out.backward()": NEITHER,
    "out = here(x)\ndel out\nout.backward()": NEITHER,
    "def f():\n    out = here(x)\n    def g():\n        return ce(out, y)\n    return g": STORED,
    "def f():\n    g = lambda: out.mean()\n    out = here(x)\n    return g": STORED,
    "def f():\n    out = here(x)\n    def g(out):\n        out.backward()": NEITHER,
    "def f():\n    global out\n    out = here(x)": STORED,
    "self.a, self.b = here(x)": STORED,
    "h['bw'](here(x))": STORED,
    "out = here(x)\nn = h['bw'](out)": STORED,
    "out = here(x)\nn = h['bw'](out.argmax(1))": NEITHER,
    "out = nets['a'](x.to(device))  # here()": NEITHER,
    "out = make(y)(here(x))": STORED,
    "loss = nn.MSELoss()(here(x), y)": NEITHER,
    "fin = make(here(x))\nfin()": STORED,
    "step = make(here(x))\nstep.finish()": STORED,
    "self.process(here(x))": STORED,
    "out = here(x)\nself.process(out)": STORED,
    "out = here(x)\nself.log('loss', out.mean())": NEITHER,
    "self.log('loss', here(x))": NEITHER,
    "losses.append(ce(here(x), y).item())": NEITHER,
    "out = here(x)\nlosses.append(ce(out, y).item())": NEITHER,
    "Result(here(x)).finish()": STORED,
    "parts.update({'a': here(x)})": STORED,
    "def step(loss):\n    loss.backward()\n    return 1\nn = step(here(x))": STORED,
    "correct += (here(x).argmax(1) == y).sum().item()": NEITHER,
    "def f():\n    return here(x).sum().item() / n": NEITHER,
    "def f():\n    return float(here(x)), n": NEITHER,
    "def f():\n    outs.append(here(x))\n    return sum(outs)": Fate.BOTH,
    "def f():\n    outs.append(here(x))\n    return [out.shape for out in outs]": STORED,
}


@pytest.mark.parametrize("text", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_value_is_followed_to_the_backward(text: str, tmp_path: Path) -> None:
    """By names, until the function ends; what is returned is for the caller to say."""
    path = tmp_path / "program.py"
    path.write_text(text)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if "here(" in content)
    assert fate_of(str(path), line) is PROGRAMS[text]


EXPRESSIONS = {
    "f = lambda x: here(x)": ("<lambda>", RETURNED),
    "f = lambda x: here(x).item()": ("<lambda>", NEITHER),
    "f = lambda x: here(x).backward()": ("<lambda>", BACKWARD),
    "f = lambda x: h['bw'](here(x))": ("<lambda>", Fate.BOTH),
    "print(sum(here(x) for x in data))": ("<genexpr>", RETURNED),
    "print(sum(here(x).item() for x in data))": ("<genexpr>", NEITHER),
    "losses = [here(x) for x in data]": ("<listcomp>", RETURNED),
    "self.losses = {x: here(x) for x in data}": ("<dictcomp>", RETURNED),
}


@pytest.mark.parametrize("text", EXPRESSIONS, ids=range(len(EXPRESSIONS)))
def test_an_expression_that_runs_as_a_function_returns_its_value(text: str, tmp_path: Path) -> None:
    """The statement around it may stand elsewhere than the call."""
    name, fate = EXPRESSIONS[text]
    path = tmp_path / "program.py"
    path.write_text(text)
    assert fate_of(str(path), 1, name) is fate


def test_what_has_no_file_may_go_anywhere() -> None:
    """Text that was typed in or executed cannot be read."""
    assert fate_of("<stdin>", 1) is STORED


@pytest.mark.parametrize(
    ("text", "fate"),
    [("out = model(x)\nprint(out.mean())\n", STORED), ("labels = model(x).argmax(1)\n", NEITHER)],
)
def test_what_a_cell_leaves_in_a_name_may_go_to_the_next_cells_backward(
    text: str, fate: Fate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell is no file: it has no end after which its names are read by nobody; a script has one."""
    cell, script = f"<ipython-input-{len(text)}-0f>", tmp_path / "script.py"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
    script.write_text(text)
    assert (fate_of(cell, 1), fate_of(str(script), 1)) == (fate, NEITHER)
