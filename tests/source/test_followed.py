"""Whether a backward still comes to the graph of a call, where one scope trains and evaluates."""

import textwrap
from pathlib import Path

import pytest

from memguard.source.followed import ends_unused, meets_backward

TRAINING = """
def loss_of(pred, y): return (pred - y).pow(2).mean()
def tune(loss): loss.backward()
for epoch in range(3):
    model.train()
    for x, y in data:
        h, cost = zeros(), 0.0
        for t in range(6):
            pred, h = model(x[t], h)
            cost = cost + loss_of(pred, y)
        cost.backward()
        opt.step()
    model.eval()
    h, errors, total = zeros(), [], 0.0
"""

ENDS = {
    "numbers alone": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    errors.append((pred - y).abs().item())",
    "in branches": (
        "for x, y in test:\n    try:\n        if x is not None:\n            with timer:\n                "
        "pred, h = model(x, h)  # asks\n    finally:\n        print(pred)"
    ),
    "a sum that is shown": "for x, y in test:\n    total = total + loss_of(model(x), y)  # asks\nprint(float(total))",
    "a list that becomes a number": (
        "for x, y in test:\n    out = model(x)  # asks\n    errors.append(out)\nmae = torch.stack(errors).mean().item()"
    ),
    "taken away": "for x, y in test:\n    pred, h = model(x, h)  # asks\ndel pred, h",
}

GOES_ON = {
    "a backward in the loop": (
        "for x, y in test:\n    cost = loss_of(model(x), y)  # asks\n    cost.backward()\n    opt.step()"
    ),
    "a backward after it": (
        "for x, y in test:\n    pred, h = model(x, h)  # asks\n    total = total + loss_of(pred, y)\ntotal.backward()"
    ),
    "in the next turn": (
        "for x, y in test:\n    if epoch:\n        loss_of(pred, y).backward()\n    pred = model(x)  # asks"
    ),
    "by a list": (
        "for x, y in test:\n    out = model(x)  # asks\n    errors.append(out)\ntorch.stack(errors).mean().backward()"
    ),
    "by autograd.grad": (
        "for x, y in test:\n    s = model(s)  # asks\n    total += s.mean()\ng = torch.autograd.grad(total, actions)"
    ),
}

UNKNOWN = {
    "a function that trains": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    tune(loss_of(pred, y))",
    "a function for its effect": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    spread(pred)",
    "an attribute": "for x, y in test:\n    pred, h = model(x, h)  # asks\n    model.last = pred",
    "an attribute's backward": "for x, y in test:\n    pred = model(x)  # asks\nmodel.h.sum().backward()",
    "a closure": "def closure():\n    return pred.mean()\nfor x, y in test:\n    pred = model(x)  # asks",
    "no loop": "pred = model(x)  # asks",
}


def written(tmp_path: Path, evaluation: str, *, in_function: bool) -> tuple[str, int]:
    """A script, and the line that asks the model in its evaluation."""
    text = TRAINING + textwrap.indent(evaluation, "    ")
    if "no loop" in UNKNOWN and evaluation == UNKNOWN["no loop"]:
        text = evaluation
    if in_function:
        text = "def main():\n" + textwrap.indent(text, "    ")
    file = tmp_path / "program.py"
    file.write_text(text)
    return str(file), next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# asks"))


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize("name", [*ENDS, *GOES_ON, *UNKNOWN])
def test_a_graph_ends_unused_only_where_the_source_says_so(tmp_path: Path, name: str, in_function: bool) -> None:
    """The training before has a backward for the same names, which take something else before it comes again."""
    file, line = written(tmp_path, {**ENDS, **GOES_ON, **UNKNOWN}[name], in_function=in_function)
    assert ends_unused(file, line) is (name in ENDS)


@pytest.mark.parametrize("in_function", [False, True])
@pytest.mark.parametrize(("name", "holder"), [*((n, "pred") for n in ENDS), ("a backward after it", "total")])
def test_a_backward_is_met_by_what_it_is_called_on(tmp_path: Path, name: str, holder: str, in_function: bool) -> None:
    """Of an evaluation none, though the training goes on; of a test-time training the one at its end."""
    file, line = written(tmp_path, {**ENDS, **GOES_ON}[name], in_function=in_function)
    assert meets_backward(file, line + (holder == "total"), holder) is (name in GOES_ON)


@pytest.mark.parametrize("name", ["a backward after it", "by a list", "by autograd.grad"])
def test_the_state_of_a_roll_out_that_is_trained_on_meets_a_backward(tmp_path: Path, name: str) -> None:
    """Whatever lies between it and the loss."""
    file, line = written(tmp_path, GOES_ON[name], in_function=False)
    holder = {"a backward after it": "pred", "by a list": "out", "by autograd.grad": "s"}[name]
    assert meets_backward(file, line, holder)


def test_what_is_typed_into_a_session_never_qualifies() -> None:
    """Another cell may call backward."""
    assert not ends_unused("<ipython-input-3>", 3) and not meets_backward("<ipython-input-3>", 3, "h")
