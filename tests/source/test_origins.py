"""Weights that lie under a name are traced to the call that loaded them."""

from pathlib import Path

import pytest

from memguard.records.facts import Place
from memguard.source.model import SourceModel
from memguard.source.origins import is_on_host, loaded_by
from memguard.source.upcasts import cast_name, find_upcast


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


LOAD = 'ckpt = torch.load(path)\nweights = ckpt.get("model")  # here\nmodel.load_state_dict(weights)\n'
RENAMED = """
ckpt = torch.load(path)
weights = ckpt["model"]
for k, v in list(weights.items()):
    weights[k[10:]] = weights.pop(k)  # here
model.load_state_dict(weights)
"""
METHOD = """
class A:
    def resume(self, path):
        ckpt = torch.load(path)
        self.model.load_state_dict(ckpt["model"])
        self.start = ckpt  # here
    def tell(self):
        print(self.start["epoch"])
"""
LOADED = {
    "as it is": (LOAD, "weights", (1, "ckpt")),
    "renamed in place": (RENAMED, "weights", (2, "ckpt")),
    "let go": (RENAMED + "del ckpt", "weights", (2, "weights")),
    "let go by None": (RENAMED + "ckpt = None", "weights", (2, "weights")),
    "an attribute, as the method is over": (METHOD, "A.start", (4, "A.start")),
    "wanted later": (LOAD + "loss = (p - weights[name]).square().sum()", "weights", None),
    "handed on": (LOAD + "anchor = Anchor(weights)", "weights", None),
    "an attribute that is wanted": (METHOD + "        dist(self.model, self.start)", "A.start", None),
    "given to no model": ("ckpt = torch.load(path)\nweights = ckpt['model']  # here", "weights", None),
}


@pytest.mark.parametrize("name", LOADED)
def test_where_weights_were_loaded(tmp_path: Path, name: str) -> None:
    """The line of the load, and the name that keeps all of it."""
    text, holder, expected = LOADED[name]
    file = tmp_path / "train.py"
    file.write_text(text)
    line = next(number for number, part in enumerate(text.splitlines(), 1) if "# here" in part)
    found = loaded_by(Place(file=str(file), line=line, holder=holder))
    assert (None if found is None else (found.line, found.holder)) == expected


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
