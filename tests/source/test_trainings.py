"""Whether running functions can come to a backward, by the names they use."""

from __future__ import annotations

import dis
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
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    module = compile(PROGRAM, str(file), "exec")
    assert may_train([(code_of(function, module), 0)], [str(file)]) is trains


SCRIPT = """
train()
for _ in range(3):
    play()
    if late():
        train()
play()
"""


@pytest.mark.parametrize(("line", "trains"), [(2, True), (3, True), (4, True), (6, True), (7, False)])
def test_what_has_run_comes_again_in_a_loop_only(line: int, trains: bool, tmp_path: Path) -> None:
    """Of a running function what is ahead counts: from the loop around its line on, else from the line itself."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    script = compile(SCRIPT, str(file), "exec")
    called = [step.offset for step in dis.get_instructions(script) if step.positions and step.positions.lineno == line]
    assert may_train([(script, called[-1])], [str(file)]) is trains


def test_a_file_that_cannot_be_read_may_do_anything(tmp_path: Path) -> None:
    """No source, no statement."""
    assert may_train([], [str(tmp_path / "gone.py")])


def test_an_empty_file_does_nothing(tmp_path: Path) -> None:
    """A package's ``__init__.py`` often is."""
    (tmp_path / "__init__.py").touch()
    assert not may_train([], [str(tmp_path / "__init__.py")])
