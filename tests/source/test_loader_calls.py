"""Where loaders are made, by the source alone."""

from __future__ import annotations

from pathlib import Path

from memguard.source.loader_calls import loader_calls

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
    found = [(call.line, call.function, call.name) for call in loader_calls([str(file), str(file)])]
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
