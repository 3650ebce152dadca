"""Where a statement's value goes."""

from __future__ import annotations

import linecache
import textwrap
from pathlib import Path

import pytest

from memguard.source.fate import Fate, fate_of

BACKWARD, RETURNED, ESCAPES, UNUSED = Fate.BACKWARD, Fate.RETURNED, Fate.ESCAPES, Fate.UNUSED

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
    "out = here(x)\nout = other(x)\nout.backward()": UNUSED,
    "if step % 100 == 0:\n    print(here(x))\nloss = model(x).mean()\nloss.backward()": UNUSED,
    "scores = here(x)\nfor x in data:\n    loss = model(x)\n    loss.backward()": UNUSED,
    "def f():\n    return ce(here(x), y)": RETURNED,
    "def f():\n    loss = ce(here(x), y)\n    log(loss)\n    return loss": RETURNED,
    "def f():\n    loss = here(x)\n    return loss.item() if ok else None": UNUSED,
    "def f():\n    loss = here(x)\n    return 1": UNUSED,
    "def f():\n    yield here(x)": RETURNED,
    "for out in here(x):\n    out.backward()": BACKWARD,
    "def f():\n    out = here(x)\n    def g():\n        out.backward()": BACKWARD,
    "here(": ESCAPES,
    "t = here(x).detach()\nloss = mse(model(x), t)\nloss.backward()": UNUSED,
    "t = here(x)\nloss = mse(model(x), t.detach())\nloss.backward()": UNUSED,
    "t = here(x)\nloss = mse(model(x), t.argmax(1))\nloss.backward()": UNUSED,
    "def f():\n    return here(x).sum().item()": UNUSED,
    "def f():\n    a = here(x)\n    kept.append(a.requires_grad)\n    return model(x) + a.detach()": UNUSED,
    "metric.update(here(x), y)": UNUSED,
    "functional.mse_loss(here(x), y)": UNUSED,
    "torch.autograd.backward(here(x).sum())": BACKWARD,
    "self.clean = here(x)": ESCAPES,
    "def f(self):\n    out = here(x)\n    self.out['clean'] = out": ESCAPES,
    "outs.append(here(x))": ESCAPES,
    "add(here(x))": ESCAPES,
    "clean = here(x)\nadd(ce(clean, y))": ESCAPES,
    "print(here(x))": UNUSED,
    "losses.append(here(x).item())": UNUSED,
    "total += ce(here(x), y).item()": UNUSED,
    "outs.append(here(x))\nsum(outs).backward()": BACKWARD,
    "def f():\n    for x in data:\n        yield here(x), x": RETURNED,
    "def f():\n    yield here(x).item()": UNUSED,
    "def f():\n    yield here(x).item(), len(x)": UNUSED,
    "def f():\n    loss = here(x)\n    yield loss\n    loss.backward()": BACKWARD,
    "for out, y in here(x):\n    total += ce(out, y).item()": UNUSED,
    "for out, y in here(x):\n    outs.append(out)": ESCAPES,
    "while (out := here(x)) is not None:\n    out.backward()": BACKWARD,
    "with here(x) as loss:\n    loss.backward()": BACKWARD,
    "with here(x) as loss:\n    print(loss)": UNUSED,
    "outs = [here(x) for x in data]\nfor out in outs:\n    out.backward()": BACKWARD,
    "outs = [here(x) for x in data]\nprint(torch.stack(outs).mean())": UNUSED,
    "for x in data:\n    if old is not None:\n        (old - 1).backward()\n    old = here(x)": BACKWARD,
    "for x in data:\n    if a:\n        b = here(x)\n        continue\n    b = model(x)\n    b.backward()": UNUSED,
    "def f():\n    out = here(x)\n    if bad:\n        return None\n    out.backward()": BACKWARD,
    "def f():\n    if early:\n        return here(x)\n    out = model(x)\n    out.backward()": RETURNED,
    "try:\n    out = here(x)\nfinally:\n    pass\nout.backward()": BACKWARD,
    "try:\n    out = here(x)\nexcept ValueError:\n    pass\nelse:\n    out.backward()": BACKWARD,
    "match x:\n    case 1:\n        out = here(x)\n    case _:\n        out.backward()": UNUSED,
    "out = here(x)\ndel out\nout.backward()": UNUSED,
    "def f():\n    out = here(x)\n    def g():\n        return ce(out, y)\n    return g": ESCAPES,
    "def f():\n    g = lambda: out.mean()\n    out = here(x)\n    return g": ESCAPES,
    "def f():\n    out = here(x)\n    def g(out):\n        out.backward()": UNUSED,
    "def f():\n    global out\n    out = here(x)": ESCAPES,
    "self.a, self.b = here(x)": ESCAPES,
    "h['bw'](here(x))": ESCAPES,
    "out = here(x)\nn = h['bw'](out)": ESCAPES,
    "out = here(x)\nn = h['bw'](out.argmax(1))": UNUSED,
    "out = nets['a'](x.to(device))  # here()": UNUSED,
    "out = make(y)(here(x))": ESCAPES,
    "loss = nn.MSELoss()(here(x), y)": UNUSED,
    "fin = make(here(x))\nfin()": ESCAPES,
    "step = make(here(x))\nstep.finish()": ESCAPES,
    "self.process(here(x))": ESCAPES,
    "out = here(x)\nself.process(out)": ESCAPES,
    "out = here(x)\nself.log('loss', out.mean())": UNUSED,
    "self.log('loss', here(x))": UNUSED,
    "losses.append(ce(here(x), y).item())": UNUSED,
    "out = here(x)\nlosses.append(ce(out, y).item())": UNUSED,
    "Result(here(x)).finish()": ESCAPES,
    "parts.update({'a': here(x)})": ESCAPES,
    "def step(loss):\n    loss.backward()\n    return 1\nn = step(here(x))": ESCAPES,
    "correct += (here(x).argmax(1) == y).sum().item()": UNUSED,
    "def f():\n    return here(x).sum().item() / n": UNUSED,
    "def f():\n    return float(here(x)), n": UNUSED,
    "outs = []\nout = here(x)\nouts.append(out)\nprint(len(outs))": UNUSED,
    "outs = []\nstate['outs'] = outs\nout = here(x)\nouts.append(out)": ESCAPES,
    "outs = []\nstate = {'outs': outs}\nout = here(x)\nouts.append(out)": ESCAPES,
    "outs = []\nkept = outs\nout = here(x)\nouts.append(out)": ESCAPES,
    "outs = []\ntracker = Tracker(outs)\nout = here(x)\nouts.append(out)": ESCAPES,
    "outs = []\ntracker.watch(outs)\nout = here(x)\nouts.append(out)": ESCAPES,
    "def f():\n    outs.append(here(x))\n    return sum(outs)": Fate.ESCAPES_AND_RETURNED,
    "def f():\n    outs.append(here(x))\n    return [out.shape for out in outs]": ESCAPES,
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
    "f = lambda x: here(x).item()": ("<lambda>", UNUSED),
    "f = lambda x: here(x).backward()": ("<lambda>", BACKWARD),
    "f = lambda x: h['bw'](here(x))": ("<lambda>", Fate.ESCAPES_AND_RETURNED),
    "print(sum(here(x) for x in data))": ("<genexpr>", RETURNED),
    "print(sum(here(x).item() for x in data))": ("<genexpr>", UNUSED),
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
    assert fate_of("<stdin>", 1) is ESCAPES


@pytest.mark.parametrize(
    ("text", "fate"),
    [("out = model(x)\nprint(out.mean())\n", ESCAPES), ("labels = model(x).argmax(1)\n", UNUSED)],
)
def test_what_a_cell_leaves_in_a_name_may_go_to_the_next_cells_backward(
    text: str, fate: Fate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell is no file: it has no end after which its names are read by nobody; a script has one."""
    cell, script = f"<ipython-input-{len(text)}-0f>", tmp_path / "script.py"
    monkeypatch.setitem(linecache.cache, cell, (len(text), None, text.splitlines(keepends=True), cell))
    script.write_text(text)
    assert (fate_of(cell, 1), fate_of(str(script), 1)) == (fate, UNUSED)


TRAINING = """
def loss_of(pred, y): return (pred - y).pow(2).mean()
def tune(loss): loss.backward()
for epoch in range(3):
    model.train()
    for x, y in data:
        h, cost = zeros(), 0.0
        for t in range(6):
            pred, h = model(x[t], h)
            cost = cost + loss_of(pred, y)
        cost.backward()
        opt.step()
    model.eval()
    h, errors, total = zeros(), [], 0.0
"""

ENDS = {
    "numbers alone": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    errors.append((pred - y).abs().item())",
    "in branches": (
        "for x, y in test:\n    try:\n        if x is not None:\n            with timer:\n                "
        "pred, h = model(x, h)  # asks\n    finally:\n        print(pred)"
    ),
    "a sum that is shown": "for x, y in test:\n    total = total + loss_of(model(x), y)  # asks\nprint(float(total))",
    "a list that becomes a number": (
        "for x, y in test:\n    out = model(x)  # asks\n    errors.append(out)\nmae = torch.stack(errors).mean().item()"
    ),
    "taken away": "for x, y in test:\n    pred, h = model(x, h)  # asks\ndel pred, h",
}

GOES_ON = {
    "a backward in the loop": (
        "for x, y in test:\n    cost = loss_of(model(x), y)  # asks\n    cost.backward()\n    opt.step()"
    ),
    "a backward after it": (
        "for x, y in test:\n    pred, h = model(x, h)  # asks\n    total = total + loss_of(pred, y)\ntotal.backward()"
    ),
    "in the next turn": (
        "for x, y in test:\n    if epoch:\n        loss_of(pred, y).backward()\n    pred = model(x)  # asks"
    ),
    "by a list": (
        "for x, y in test:\n    out = model(x)  # asks\n    errors.append(out)\ntorch.stack(errors).mean().backward()"
    ),
    "by autograd.grad": (
        "for x, y in test:\n    s = model(s)  # asks\n    total += s.mean()\ng = torch.autograd.grad(total, actions)"
    ),
}

UNKNOWN = {
    "a function that trains": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    tune(loss_of(pred, y))",
    "a function for its effect": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    spread(pred)",
    "an attribute": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    model.last = pred",
    "a closure": "def closure():\n    return pred.mean()\nfor x, y in test:\n    pred = model(x)  # asks",
}


def written(tmp_path: Path, evaluation: str, *, in_function: bool) -> tuple[str, int]:
    """A script, and the line that asks the model in its evaluation."""
    text = TRAINING + textwrap.indent(evaluation, "    ")
    if in_function:
        text = "def main():\n" + textwrap.indent(text, "    ")
    file = tmp_path / "program.py"
    file.write_text(text)
    return str(file), next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# asks"))


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", [*ENDS, *GOES_ON, *UNKNOWN])
def test_a_graph_ends_unused_only_where_the_source_says_so(tmp_path: Path, name: str, in_function: bool) -> None:
    """The training before has a backward for the same names, which take something else before it comes again."""
    file, line = written(tmp_path, {**ENDS, **GOES_ON, **UNKNOWN}[name], in_function=in_function)
    fate = fate_of(file, line)
    assert (fate is Fate.UNUSED, fate is Fate.BACKWARD) == (name in ENDS, name in GOES_ON)


def test_what_is_typed_into_a_session_never_ends_unused() -> None:
    """Another cell may call backward."""
    assert fate_of("<ipython-input-3>", 3) is Fate.ESCAPES
