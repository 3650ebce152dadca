"""Following a model's output to the line that copies it."""

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.model import SourceModel
from memguard.source.upcasts import cast_name, find_upcast

PROGRAMS = {
    "below the call": (
        "for ids in data:\n    logits = model(ids)  # CALL\n    other = torch.zeros(3).float()\n"
        "    loss = F.cross_entropy(logits.flatten(0, 1), ids)  # HERE\n"
    ),
    "in a function above": (
        "def loss_of(out, labels, scale=1.0):\n    shifted = out[:, :-1]\n    wide = shifted.float()  # HERE\n"
        "    return nn.functional.cross_entropy(wide, labels)\n\n"
        "def step(ids):\n    out = model(ids)  # CALL\n    return loss_of(out, ids)\n"
    ),
    "in a method, by keyword": (
        "class Job:\n    def step(self, ids):\n        scores = self.model(ids)  # CALL\n"
        "        return self.take(labels=ids, scores=scores)\n\n"
        "    def take(self, scores, labels):\n        return scores.log_softmax(-1)  # HERE\n"
    ),
    "a loss module": "out = model(ids)  # CALL\nx = out.shape\nloss = self.criterion(out, ids)  # HERE\n",
    "called around the model": (
        "def lm_loss(logits, labels):\n    logits = logits.to(torch.float32)  # HERE\n"
        "    return F.cross_entropy(logits.flatten(0, 1), labels)\n\n"
        "def step(ids):\n    return_value = lm_loss(model(ids[:, :-1]), ids[:, 1:])  # CALL\n"
    ),
    "moved, then cast": "out = model(ids)  # CALL\nout = out.to(device)\nwide = out.to(dtype=torch.float)  # HERE\n",
    "on the same line": "loss = criterion(model(ids), ids)  # CALL HERE\n",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_finds_the_line(name: str, tmp_path: Path) -> None:
    """The cast or the loss of what the call gave, in whatever function, and not another's."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[name])
    lines = PROGRAMS[name].splitlines()
    call = next(number for number, text in enumerate(lines, 1) if "CALL" in text)
    here = next(number for number, text in enumerate(lines, 1) if "HERE" in text)
    found = find_upcast(Place(file=str(file), line=call))
    assert found is not None
    assert (found.line, found.source) == (here, lines[here - 1].partition("#")[0].strip())


def test_shows_nothing_where_the_source_does_not(tmp_path: Path) -> None:
    """What is returned, or not read at all, cannot be followed."""
    file = tmp_path / "program.py"
    file.write_text("def forward(ids):\n    return model(ids)\n\nx = torch.ones(3).float()\n")
    assert find_upcast(Place(file=str(file), line=2)) is None
    assert find_upcast(Place(file=str(tmp_path / "gone.py"), line=2)) is None
    assert find_upcast(Place()) is None


def test_a_cast_tensor_has_the_name_that_its_line_gives_it(tmp_path: Path) -> None:
    """Not that of what is computed from it on the same line."""
    file = tmp_path / "program.py"
    file.write_text(
        "logits = logits.float()\nself.wide = out[:, :-1].to(torch.float32).flatten(0, 1)\n"
        "loss = F.cross_entropy(out.float(), y)\nloss_of(out.float())\n"
    )
    source = SourceModel.of(str(file))
    assert [cast_name(source.scope_at(line), line) for line in range(1, 5)] == ["logits", "self.wide", None, None]
