"""The model of a source file: parsed once, scopes and loops by line, stores and aliases by scope."""

import linecache
import os
from pathlib import Path

import pytest

from memguard.source.model import MAX_FILES, SourceModel, Sources
from tests.source import model_of

TEXT = """
import torch

class Trainer:
    @torch.no_grad()
    def validate(self, loader):
        kept = self.outputs
        for epoch in range(2):
            for x in loader:
                kept.append(x)
        score = lambda y: y + 1
        return score(kept)

def fit(loader):
    with torch.no_grad():
        total = 0
    with torch.no_grad(), torch.enable_grad():
        total += step(loader)
    global best
    best = [x for x in loader]
    return total

while True:
    fit(loader)
"""


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path) -> None:
    """By what linecache has of it; a file that is gone is an empty one, one that Python cannot read is not read."""
    file = tmp_path / "script.py"
    file.write_text("x = 1\n")
    first = SourceModel.of(str(file))
    assert first.is_read and SourceModel.of(str(file)) is first
    linecache.clearcache()
    assert SourceModel.of(str(file)) is first  # read anew, and the same
    file.write_text("y = 2; z = 3\n")
    os.utime(file, (1, 1))
    linecache.checkcache(str(file))
    second = SourceModel.of(str(file))
    assert second is not first and second.module.bound == {"y", "z"}
    file.write_text("y = (\n")
    linecache.checkcache(str(file))
    unread = SourceModel.of(str(file)), SourceModel.of(None)
    assert not any(model.is_read or model.tree.body for model in unread)
    gone = SourceModel.of(str(tmp_path / "gone.py"))
    assert gone.is_read and not gone.tree.body


def test_few_models_are_kept(tmp_path: Path) -> None:
    """The oldest go first."""
    files = [tmp_path / f"{number}.py" for number in range(MAX_FILES + 1)]
    for file in files:
        file.write_text("x = 1\n")
    models = [SourceModel.of(str(file)) for file in files]
    assert SourceModel.of(str(files[-1])) is models[-1]
    assert SourceModel.of(str(files[0])) is not models[0]


@pytest.mark.parametrize(
    ("line", "path", "loops"),
    [
        (2, "<module>", []),
        (5, "<module>", []),
        (7, "Trainer.validate", []),
        (10, "Trainer.validate", [8, 9]),
        (16, "fit", []),
        (24, "<module>", [23]),
    ],
)
def test_who_is_around_a_line(line: int, path: str, loops: list[int]) -> None:
    """The innermost function, lambdas and classes left out, and its own loops, outermost first."""
    model = model_of(TEXT)
    assert model.scope_at(line).path == path
    assert [loop.lineno for loop in model.around(line)[1]] == loops


def test_a_search_reads_so_many_lines(tmp_path: Path) -> None:
    """Files beyond that count as unreadable, as all do once it is late."""
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for file in files:
        file.write_text("x = 1\n" * 6)
    sources = Sources(max_lines=10)
    assert [sources.get(str(file)).is_read for file in files] == [True, False]
    assert not Sources(is_late=lambda: True).get(str(files[0])).is_read
    assert sources.get(str(files[0]), ("other",)).is_read and not Sources().get(str(files[0]), ("other",)).is_read


def test_files_of_other_modules_leave_the_nearest_readable(tmp_path: Path) -> None:
    """A search through all the modules of a large program has a bound of its own; they are listed once."""
    files = [str(tmp_path / "one.py"), str(tmp_path / "two.py")]
    for file in files:
        Path(file).write_text("x = 1\n" * 6)
    sources = Sources(max_lines=10)
    listed, others = sources.others(lambda: files)
    assert [others.get(file).is_read for file in listed] == [True, False]
    assert sources.get(files[1]).is_read and sources.others(list) == (listed, others)
