"""The line that compiles, or captures: found in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.source.compile_sites import compile_site


@pytest.mark.parametrize(
    ("text", "captures", "line"),
    [
        ("import torch\nfast = torch.compile(net, dynamic=False)\n", False, 2),
        ("import torch\n\n@torch.compile\ndef step(x):\n    return x\n", False, 3),
        ("from torch import compile\n@compile(mode='reduce-overhead')\ndef step(x):\n    return x\n", False, 2),
        ("import re\npattern = re.compile('a')\nnet.compile()\n", False, 3),
        ("import torch\nwith torch.no_grad(), torch.cuda.graph(g, pool=p):\n    out = net(x)\n", True, 2),
        ("import torch\nfast = torch.compile(net)\n", True, None),
        ("def broken(:\n", False, None),
    ],
)
def test_the_line_is_found(tmp_path: Path, text: str, captures: bool, line: int | None) -> None:
    """A call or a decorator; what is compiled of another library is none, nor what cannot be read."""
    file = tmp_path / "train.py"
    file.write_text(text)
    assert compile_site([str(file)], captures=captures).line == line
