"""Which methods answer with what a part answers, and which functions keep a graph; by the syntax alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from types import CodeType

import pytest

from memguard.source.fate import keeps_graph


def code_of(text: str, tmp_path: Path) -> tuple[CodeType, int]:
    """The code of the function in a text, and the line that calls the model."""
    path = tmp_path / "case.py"
    path.write_text(textwrap.dedent(text).lstrip())
    compiled = compile(path.read_text(), str(path), "exec")
    line = next(number for number, line in enumerate(path.read_text().splitlines(), 1) if "net(" in line)
    return next(const for const in compiled.co_consts if isinstance(const, CodeType)), line


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
