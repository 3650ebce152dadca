"""Which methods answer with what a part answers, and which functions keep a graph; by the syntax alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import CodeType

import pytest

from memguard.source.fate import answers, keeps_graph


def code_of(text: str, tmp_path: Path) -> tuple[CodeType, int]:
    """The code of the function in a text, and the line that calls the model."""
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text).lstrip())
    compiled = compile(path.read_text(), str(path), "exec")
    line = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if "net(" in line)
    return next(const for const in compiled.co_consts if isinstance(const, CodeType)), line


@pytest.mark.parametrize(
    ("body", "strict", "loose"),
    [
        ("return self.net(x)", True, True),
        ("return self.net(x).last_hidden_state[:, 0]", True, True),
        ("h = self.net(x)\n    return h", True, True),
        ("h = self.net(x)\n    mu, logvar = h.chunk(2, 1)\n    return mu, logvar", False, True),
        ("h = self.net(x)\n    h = self.out(h)\n    return h", False, True),
        ("return self.out(self.net(x)).relu()", False, True),
        ("return self.net(x).argmax(1)", False, False),
        ("return self.net(x).detach()", False, False),
        ("ids = torch.cat([x, self.net(x).argmax(1)], 1)\n    return ids", False, False),
        ("h = self.net(x)\n    return F.mse_loss(h, x)", False, False),
        ("self.eval()\n    return self.net(x)", False, False),
        ("h = self.net(x)\n    return x", False, False),
    ],
)
def test_what_a_method_answers(body: str, strict: bool, loose: bool, tmp_path: Path) -> None:
    """Strictly: what the part gave, as it is; else whatever has its graph. A judge or an actor is no answer."""
    code, line = code_of(f"def f(self, x):\n    {body}\n", tmp_path)
    assert (answers(code, line, strict=True), answers(code, line, strict=False)) == (strict, loose)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("total += crit(net(x), x)\n    return total.item()", True),
        ("out = net(x)\n        loss = crit(out, x)\n        total += loss\n    return float(total) / 3", True),
        ("losses.append(crit(net(x), x))\n    return torch.stack(losses).mean().item()", False),
        ("loss = net(x)\n        kept.append(loss)\n    return torch.stack(kept).mean().item()", True),
        ("loss = net(x)\n        kept.append(loss)\n    return torch.stack(kept).mean()", False),
        ("kept.append(net(x))\n    z = torch.cat(kept)\n    return (z @ z.T).argmax(1).tolist()", False),
        ("kept.append(net(x))\n    return kept", False),
        ("kept.append(net(x))\n    torch.cat(kept).sum().backward()\n    return 0", False),
        ("loss = net(x)\n        total += loss\n    total.backward()\n    return 0", False),
        ("loss = net(x)\n        self.last = loss\n    return 0", False),
        ("loss = net(x)\n        yield loss", False),
        ("loss = net(x)\n        losses.append(loss)\n    return 0", False),
    ],
)
def test_what_keeps_a_graph_to_itself(body: str, kept: bool, tmp_path: Path) -> None:
    """At most it adds up; what goes back, out of sight or into a backward may still be used.

    A list that an answer goes into at once is told as what keeps it (MG101), which an early MG201 would hide.
    """
    text = f"def f(self, batches, losses):\n    total, kept = 0, []\n    for x in batches:\n        {body}\n"
    code, line = code_of(text, tmp_path)
    assert keeps_graph(code, line) is kept
