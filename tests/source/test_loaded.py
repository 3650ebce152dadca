"""Weights that lie under a name are traced to the call that loaded them."""

import textwrap
from pathlib import Path

import pytest

from memguard.facts import Place
from memguard.source.loaded import loaded_by

LOAD = "ckpt = torch.load(path, map_location=device)"


def traced(tmp_path: Path, body: str, holder: str, *, main: bool = False) -> tuple[int | None, str | None] | None:
    """Line and holder of what a name has, asked at the line marked so; of a module's source, or a function's."""
    text = textwrap.dedent(body)
    if main:
        text = "def main():\n" + textwrap.indent(text, "    ")
    file = tmp_path / f"train{len(list(tmp_path.iterdir()))}.py"
    file.write_text(text)
    line = next(number for number, part in enumerate(text.splitlines(), 1) if "# here" in part)
    found = loaded_by(Place(file=str(file), line=line, holder=holder))
    return (found.line, found.holder) if found is not None else None


STRIPPED = f"""
{LOAD}
state_dict = ckpt["model"]
for k, v in list(state_dict.items()):
    if k.startswith("_orig_mod."):
        state_dict[k[10:]] = state_dict.pop(k)  # here
model.load_state_dict(state_dict)
"""
OTHERS = (
    f'{LOAD}\nweights = ckpt.get("model")  # here\nmodel.load_state_dict(weights)\n',
    f'{LOAD}\nweights = {{k[7:]: v for k, v in ckpt["model"].items()}}  # here\nmodel.load_state_dict(weights)\n',
    f"{LOAD}\nweights = OrderedDict()\nfor k, v in ckpt.items():\n    weights[k[7:]] = v  # here\n"
    "model.load_state_dict(weights, strict=False)\nprint(ckpt['epoch'])\n",
)


@pytest.mark.parametrize("main", [False, True])
def test_renamed_weights_are_the_checkpoints(tmp_path: Path, main: bool) -> None:
    """Whether their keys are changed in place, in a new dict or not at all, at the top of a file or in a function."""
    line = 3 if main else 2
    assert traced(tmp_path, STRIPPED, "state_dict", main=main) == (line, "ckpt")
    for body in OTHERS:
        assert traced(tmp_path, body, "weights", main=main) == (line - 1, "ckpt")


@pytest.mark.parametrize("release", ["del ckpt", "ckpt = None"])
def test_a_checkpoint_that_is_let_go_is_no_holder(tmp_path: Path, release: str) -> None:
    """The weights of it are, if their name stays."""
    assert traced(tmp_path, STRIPPED + release, "state_dict") == (2, "state_dict")


def test_an_attribute_is_the_holder_where_a_method_loaded_it(tmp_path: Path) -> None:
    """Its local variable is gone when the method returns."""
    body = f"class A:\n  def resume(self, path):\n    {LOAD}\n    self.start = ckpt['model']  # here\n"
    body += "    self.model.load_state_dict(self.start)\n"
    assert traced(tmp_path, body, "A.start") == (3, "A.start")
    assert traced(tmp_path, body + "  def far(self):\n    return dist(self.model, self.start)\n", "A.start") is None


@pytest.mark.parametrize(
    "after",
    [
        "loss = (p - weights[name]).square().sum()",
        "anchor = Anchor(weights)",
        "self.anchor = weights",
        "def penalty():\n    return weights['x'].sum()",
        "weights = {k: v.clone() for k, v in model.state_dict().items()}",
    ],
)
def test_weights_that_are_wanted_later_or_are_not_the_checkpoints_alone_are_not_traced(
    tmp_path: Path, after: str
) -> None:
    """What reads them, or may keep them, or gives the name other weights."""
    assert traced(tmp_path, f"{OTHERS[0]}{after}\n", "weights") is None


def test_copies_and_what_every_turn_begins_with_are_not_traced(tmp_path: Path) -> None:
    """A clone is a copy of its own; folds that all begin with the same weights need them."""
    clone = f"{LOAD}\nweights = {{k: v.clone() for k, v in ckpt.items()}}  # here\nmodel.load_state_dict(weights)\n"
    assert traced(tmp_path, clone, "weights") is None
    folds = f"{LOAD}\nweights = ckpt['model']  # here\nfor fold in folds:\n    model.load_state_dict(weights)\n"
    assert traced(tmp_path, folds, "weights") is None


def test_to_read_a_number_of_it_later_is_not_to_read_its_weights(tmp_path: Path) -> None:
    """The epoch that a checkpoint was of may be asked for at any time, under its own key."""
    body = f"class A:\n  def resume(self, path):\n    {LOAD}\n    self.model.load_state_dict(ckpt['model'])\n"
    body += "    self.resumed_from = ckpt  # here\n  def tell(self):\n    print(self.resumed_from"
    reads = (("['epoch']", True), (".get('epoch', 0)", True), ("['model']", False), ("", False))
    for number, (read, found) in enumerate(reads):
        file = tmp_path / f"train{number}.py"
        file.write_text(f"{body}{read})\n")
        place = loaded_by(Place(file=str(file), line=5, holder="A.resumed_from"), ("epoch",))
        assert (place is not None and (place.line, place.holder) == (3, "A.resumed_from")) is found
