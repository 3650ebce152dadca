"""Weights that lie under a name are traced to the call that loaded them."""

import textwrap
from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.origins import is_on_host, loaded_by


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("kept.append(out.detach().cpu())", True),
        ("kept.append(out.detach())", False),
        ('kept.append(out.to("cpu"))', True),
        ('kept.append(out.to(device="cpu"))', True),
        ('kept.append(out.to("cuda"))', False),
        ("kept += out.tolist()", True),
        ("kept.append(on_host)", True),
        ("kept.append(on_device)", False),
        ("kept[tuple(out.tolist())] = on_device", False),
        ("kept.setdefault(out.item(), on_device)", False),
        ("kept.append({out.item(): on_device[out.item()]})", False),
        ("kept[out] = on_host", True),
        ("kept.append((out.item(), on_device))", False),
        ("kept.append((number, copy.deepcopy(on_device)))", False),
        ("heapq.heappush(kept, (-number, next(count), on_device))", False),
        ("kept.append((100 * number, on_host))", True),
        ("kept.append((number, out.cpu()))", True),
        ('kept["best"] = {"loss": number, "state": on_device}', False),
        ('kept["best"] = {"loss": number, "top": out.item()}', True),
        ("kept.append(torch.tensor([out.item(), n]))", True),
        ("kept.append((number, out.argmax().item()))", True),
        ("kept.append(judge.eval(out))", False),
        ("kept.append(judge)", True),
        ("kept.append(Record(score=out.mean().item(), top=out[:2]))", False),
        ("kept.append(dict(score=number, top=out[:2]))", False),
        ("kept.append(Record(score=number, top=out.cpu()))", True),
        ("kept.append(on_host.view(-1))", True),
        ("kept.append(Judge(out.tolist()).eval(out))", False),
        ("kept.append(out @ tower.item(ids).t())", False),
        ("kept.append((tower.item(ids), on_host))", True),
        ("kept.append(torch.arange(max(out.tolist())))", False),
        ("kept.append(on_device.expand(number, -1))", False),
        ("kept.append(on_host.expand(number, -1))", True),
        ("kept.append(torch.reshape(out.cpu(), (-1,)))", True),
        ("kept.append(np.tile(on_host, 2))", True),
        ("kept.append(repeat(out.cpu(), 'n -> n 2'))", True),
        ("kept.append(self.view(out.cpu()))", True),
    ],
)
def test_what_was_brought_to_the_host_is_told_from_the_statement(tmp_path: Path, text: str, host: bool) -> None:
    """A call that brings it there, in the statement or where its variable was set."""
    file = tmp_path / "program.py"
    file.write_text(
        "def f(out, kept):\n    on_host = out.numpy()\n    on_device = out * 2\n"
        f"    number = out.mean().item() / 2\n    judge = Judge(out.tolist())\n    {text}\n"
    )
    assert is_on_host(Place(file=str(file), line=6)) is host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("total += metric(out, out * 2).item()", False),
        ("total += float(self.metric(out.cpu(), out))", True),
        ("metric.add(out.item())", True),
    ],
)
def test_what_a_metric_answers_says_nothing_of_what_it_keeps(tmp_path: Path, text: str, host: bool) -> None:
    """Where the holder is called, its arguments are what it keeps."""
    file = tmp_path / "program.py"
    file.write_text(f"def f(self, out, metric, total):\n    {text}\n")
    assert is_on_host(Place(file=str(file), line=2, holder="metric")) is host


def test_an_attribute_that_is_set_says_nothing_of_its_object(tmp_path: Path) -> None:
    """``state.best = loss.item()`` brings no ``state`` to the host; an element that is set does."""
    file = tmp_path / "program.py"
    file.write_text(
        "def f(out, state, row):\n    state.best = out.item()\n    state.kept.append(out)\n"
        "    row['loss'] = out.item()\n    state.rows.append(row)\n"
    )
    assert not is_on_host(Place(file=str(file), line=3, holder="state.kept"))
    assert is_on_host(Place(file=str(file), line=5, holder="state.rows"))


@pytest.mark.parametrize(("holder", "host"), [("kept", True), ("Trainer.other[0]", False)])
def test_of_statements_on_one_line_the_holders_own_counts(holder: str, host: bool, tmp_path: Path) -> None:
    """``n += 1; kept.append(x.cpu()); print(n)``."""
    file = tmp_path / "program.py"
    file.write_text("n = 1; kept.append(x.cpu()); self.other.append(x); print(n)\n")
    assert is_on_host(Place(file=str(file), line=1, holder=holder)) is host


def test_what_cannot_be_read_is_on_the_device(tmp_path: Path) -> None:
    """No file, no line, no Python."""
    file = tmp_path / "notes.py"
    file.write_text("def (:\n")
    assert not is_on_host(Place())
    assert not is_on_host(Place(file=str(file), line=1))


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
