"""Whether running functions can come to a backward, by the names they use."""

from __future__ import annotations

from pathlib import Path
from types import CodeType

import pytest

from memguard.source.trainings import may_train

PROGRAM = """
class Agent:
    def act(self, state):
        return self.policy(state)

    def learn(self, loss):
        loss.backward()

class Simulator:
    def advance(self, action):
        return action

def play():
    agent, simulator = Player(), Simulator()
    for _ in range(9):
        simulator.advance(agent.act(0))

class Player:
    def act(self, state):
        return state

def train():
    agent = Agent()
    for _ in range(9):
        finish(agent.act(0))

def finish(loss):
    update = lambda: helper(loss)
    update()

def helper(loss):
    torch.autograd.grad(loss, [])
"""


def code_of(name: str, module: CodeType) -> CodeType:
    (found,) = (code for code in module.co_consts if isinstance(code, CodeType) and code.co_name == name)
    return found


@pytest.mark.parametrize(("function", "trains"), [("play", False), ("train", True), ("helper", True)])
def test_functions_are_followed_by_name(function: str, trains: bool, tmp_path: Path) -> None:
    """What a running function names is followed to other functions, also through lambdas and methods."""
    assert trains_at(tmp_path, PROGRAM, function, f"def {function}") is trains


SCRIPT = """
train()
for _ in range(3):
    play()
    if late():
        train()
play()
"""


@pytest.mark.parametrize(("line", "trains"), [(0, True), (1, True), (2, True), (4, True), (5, False)])
def test_what_has_run_comes_again_in_a_loop_only(line: int, trains: bool, tmp_path: Path) -> None:
    """Of a running function what is ahead counts: from the loop around its line on, else from the line itself."""
    text = SCRIPT.strip().splitlines()
    marked = "\n".join([*text[:line], text[line] + "  # here", *text[line + 1 :]])
    assert trains_at(tmp_path, PROGRAM + marked, "<module>", "# here") is trains


@pytest.mark.parametrize(
    ("before", "now", "trains"),
    [
        ("", "run(train, data)  # here", True),
        ("update = train", "for x in data: update(x)  # here", True),
        ("update = partial(train, net)", "run(update)  # here", True),
        ("update = lambda x: train()", "run(update)  # here", True),
        ("loop = Loop(data)", "loop.run()  # here", True),
        ("result = train()", "play(result)  # here", False),
        ("", "play(train())  # here", False),
    ],
)
def test_a_function_that_is_handed_on_may_be_called_later(before: str, now: str, trains: bool, tmp_path: Path) -> None:
    """By another name, or by the object that was made with it; one that was called and has returned is over."""
    loop = "class Loop:\n    def __init__(self, data):\n        self.step = train\n\n"
    assert trains_at(tmp_path, f"{PROGRAM}{loop}{before}\n{now}\n", "<module>", "# here") is trains


def trains_at(folder: Path, text: str, function: str, marked: str) -> bool:
    """The answer where a function of a program runs the line with a mark."""
    file = folder / "program.py"
    file.write_text(text)
    module = compile(text, str(file), "exec")
    code = module if function == "<module>" else code_of(function, module)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if marked in one)
    return may_train([(code, line)], [str(file)])


def test_a_file_that_cannot_be_read_may_do_anything(tmp_path: Path) -> None:
    """No source, no statement."""
    assert may_train([], [str(tmp_path / "gone.py")])


def test_an_empty_file_does_nothing(tmp_path: Path) -> None:
    """A package's ``__init__.py`` often is."""
    (tmp_path / "__init__.py").touch()
    assert not may_train([], [str(tmp_path / "__init__.py")])
