"""The line that compiles, or captures: found in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from memguard.source.sites import AutocastRegions, compile_site, loader_calls
from tests.source import model_of


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


PROGRAM = """
class Data:
    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8)

    def setup(self):
        self.validation: object = data.DataLoader(
            self.held_out)

def main():
    loader = prefetch(DataLoader(corpus()))
    for batch in BucketLoader(corpus()):
        inner = DataLoader(batch)
    loader = load(batch)
    print(DataLoader)
    DataLoader(corpus())
"""


def test_loaders_are_found_with_what_keeps_them(tmp_path: Path) -> None:
    """Assignments, returns and loops that make a loader are told with their function and the name they give it."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    found = [(call.line, call.function, call.holder) for call in loader_calls([str(file), str(file)])]
    assert found == [
        (4, "train_dataloader", None),
        (7, "setup", "validation"),
        (11, "main", "loader"),
        (12, "main", None),
        (13, "main", "inner"),
    ]


def test_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    """A file that is gone, and one that Python cannot parse, tell of no loader."""
    broken = tmp_path / "broken.py"
    broken.write_text("loader = DataLoader(\n")
    assert list(loader_calls([str(broken), str(tmp_path / "gone.py")])) == []


RESOURCE = """
class Run:
    def __enter__(self):
        {entering}
        return self

    def step(self):
        with torch.autocast("cpu"):
            return self.model()
"""


@pytest.mark.parametrize(
    ("entering", "found"),
    [
        ("self.stack.enter_context(torch.autocast('cpu'))", [("__enter__", 4)]),
        ("torch.autocast('cpu').__enter__()", [("__enter__", 4)]),
        ("self.amp = torch.autocast('cpu'); self.amp.__enter__()", [("__enter__", 4)]),
        ("self.stack.enter_context(open('log'))", []),
    ],
)
def test_only_what_is_entered_without_a_with_stays_open(entering: str, found: list[tuple[str, int]]) -> None:
    """A ``with`` closes its region as the function goes on."""
    assert AutocastRegions(model_of(RESOURCE.format(entering=entering))).left_open() == found
