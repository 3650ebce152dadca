import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.guards.no_grad import MOST_STORED
from tests.integrations.programs import net


class Hidden(nn.Module):
    """Differentiates inside through a dictionary of functions that no reading of code finds."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return OPERATIONS["derive"](self.energy(x).sum(), x)


def _engine() -> Any:
    return getattr(torch.autograd, "gr" + "ad")


OPERATIONS = {"derive": lambda energy, x: _engine()(energy, x)[0]}


def watch(model: nn.Module, folder: Path, *optimizers: torch.optim.Optimizer, **options: Any) -> memguard.Guard:
    return memguard.watch(model, optimizers, logdir=folder, quiet=True, **options)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()


def test_without_an_optimizer_evaluation_is_guarded_from_the_first_forward(tmp_path: Path) -> None:
    """Nobody trains the model: its graph is for nobody."""
    model = net().eval()
    with watch(model, tmp_path) as guard:
        assert model(torch.ones(1, 8)).grad_fn is None
    assert [finding.code for finding in guard.findings] == ["MG201"]  # which says that memguard did it


def test_after_training_evaluation_is_guarded_at_once(tmp_path: Path) -> None:
    """A training backward was seen."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        assert model(torch.ones(1, 8)).grad_fn is None
        trained(model, optimizer)


def test_before_training_the_first_forward_is_observed_and_the_next_guarded(tmp_path: Path) -> None:
    """With an optimizer and no training yet, one batch tells whether the graph is wanted."""
    model = net().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, tmp_path, optimizer):
        observed = model(torch.ones(1, 8))
        assert observed.grad_fn is not None
        del observed
        assert model(torch.ones(1, 8)).grad_fn is None


def test_an_optimizer_made_later_is_noticed(tmp_path: Path) -> None:
    """Guarded while nobody trains it; observed again as soon as somebody may."""
    model = net().eval()
    with watch(model, tmp_path):
        assert model(torch.ones(1, 8)).grad_fn is None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        output = model(torch.ones(1, 8))
        output.sum().backward()
        optimizer.step()
        assert model(torch.ones(1, 8)).grad_fn is not None


def test_once_an_evaluation_graph_was_used_none_is_ever_cut(tmp_path: Path) -> None:
    """Attribution: the graph in eval mode is wanted, for ever."""
    model = net().eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, tmp_path, optimizer):
        model(torch.ones(1, 8)).sum().backward()
        trained(model, optimizer)
        model.eval()
        assert model(torch.ones(1, 8)).grad_fn is not None


def test_an_input_that_requires_grad_is_a_wish(tmp_path: Path) -> None:
    """Also inside a nest, also by keyword."""

    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, batch: dict[str, list[torch.Tensor]]) -> torch.Tensor:
            return self.inner(batch["x"][0])

    model = Takes().eval()
    with watch(model, tmp_path):
        assert model(batch={"x": [torch.ones(1, 8, requires_grad=True)]}).grad_fn is not None
        assert model(batch={"x": [torch.ones(1, 8)]}).grad_fn is None


def test_allow_grad_lets_a_forward_build_its_graph(tmp_path: Path) -> None:
    """The escape that the notice names."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        with memguard.allow("grad"):
            model(torch.ones(1, 8)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("before", ["nothing", "optimizer", "training"])
def test_a_forward_that_differentiates_in_hiding_works_from_its_first_call(before: str, tmp_path: Path) -> None:
    """What reading the code does not find is caught while the first guarded forward runs."""
    model = Hidden()
    optimizers = [] if before == "nothing" else [torch.optim.SGD(model.parameters(), lr=0.1)]
    expected = model.eval()(torch.ones(1, 8))
    with watch(model, tmp_path, *optimizers):
        if before == "training":
            model.train()
            model.energy(torch.randn(4, 8)).sum().backward()
        model.eval()
        for _ in range(3):
            assert torch.equal(model(torch.ones(1, 8)), expected)


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_warn_and_off_never_act(mode: str, tmp_path: Path) -> None:
    """The forward builds its graph as without memguard."""
    model = net().eval()
    with watch(model, tmp_path, validation=mode):
        assert all(model(torch.ones(1, 8)).grad_fn is not None for _ in range(3))


def test_a_guarded_forward_inside_another_is_one(tmp_path: Path) -> None:
    """Nested roots, and a model that calls itself, bring grad mode back exactly once."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: torch.Tensor, again: bool = True) -> torch.Tensor:
            if again:
                self(x, again=False)
            assert not torch.is_grad_enabled()
            return self.inner(x)

    model = Twice().eval()
    with memguard.watch([model, model.inner], logdir=tmp_path, quiet=True):
        for _ in range(3):
            assert model(torch.ones(1, 8)).grad_fn is None
            assert torch.is_grad_enabled()


def test_with_several_ranks_only_what_all_of_them_see_is_a_reason(tmp_path: Path, monkeypatch: Any) -> None:
    """Before training, no rank cuts a graph, whenever its own graphs happen to die; after a training step all do."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, tmp_path, optimizer):
        model.eval()
        assert all(model(torch.ones(1, 8)).grad_fn is not None for _ in range(4))
        trained(model, optimizer)
        model.eval()
        assert model(torch.ones(1, 8)).grad_fn is None


def test_a_loss_that_goes_backward_keeps_its_graph_after_training_too(tmp_path: Path) -> None:
    """Fisher information in eval mode, by the function that training and validation use."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    with watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        validation = [loss_of(torch.ones(2, 8)) for _ in range(3)]
        assert not any(loss.requires_grad for loss in validation)
        for x in torch.ones(3, 2, 8):
            model.zero_grad()
            loss_of(x).backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_backward_that_nobody_saw_coming_says_who_took_its_graph(tmp_path: Path) -> None:
    """The error is torch's own, with a note that names the place and the way out."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="does not require grad") as caught, watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        loss = model(torch.ones(1, 8)).sum()
        assert not loss.isnan()
        vars()["loss"].backward()  # a name that no reader of code sees
    notes = getattr(caught.value, "__notes__", None)
    if sys.version_info >= (3, 11):
        assert notes is not None and "test_no_grad.py:" in notes[0] and 'memguard.allow("grad")' in notes[0]


def test_an_error_of_another_kind_gets_no_note(tmp_path: Path) -> None:
    """Nor does a missing graph that is not the guard's doing."""
    model = net()
    with pytest.raises(RuntimeError) as caught, watch(model, tmp_path):
        torch.ones(1).backward()
    assert not getattr(caught.value, "__notes__", None)


class Consistency:
    """Two forwards of a step, one in eval mode, that meet in a loss elsewhere."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.clean = self.noisy = torch.zeros(1)

    def both(self, x: torch.Tensor) -> None:
        self.model.eval()
        self.clean = self.model(x)
        self.model.train()
        self.noisy = self.model(x * 1.1)

    def loss(self) -> torch.Tensor:
        return (self.clean - self.noisy).square().mean() + self.noisy.mean()


def test_an_output_that_is_put_somewhere_may_come_into_a_loss_after_training_too(tmp_path: Path) -> None:
    """The weights are those of a run without memguard."""
    weights = []
    for guarded in (False, True):
        torch.manual_seed(0)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = Consistency(model)
        with watch(model, tmp_path, optimizer) if guarded else contextlib.nullcontext():
            for _ in range(3):
                trained(model, optimizer)
            for x in torch.linspace(0, 1, 40).view(5, 1, 8):
                optimizer.zero_grad()
                step.both(x)
                step.loss().backward()
                optimizer.step()
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    assert all(map(torch.equal, *weights))


def test_outputs_that_an_evaluation_collects_are_watched_once(tmp_path: Path) -> None:
    """A list of them might still go to a backward: where the first graph is for nobody, the next are not built."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def evaluate() -> list[bool]:
        outputs: list[torch.Tensor] = []
        for x in torch.ones(4, 2, 8):
            outputs.append(model(x))
            assert len(outputs[-1]) == 2
        return [output.requires_grad for output in outputs]

    with watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        assert sum(evaluate()) <= MOST_STORED
        assert not any(evaluate())


def use(outputs: list[torch.Tensor]) -> None:
    torch.stack(outputs).sum().backward()


def test_a_backward_that_no_running_function_names_is_waited_for_after_a_training(tmp_path: Path) -> None:
    """It was seen that something in this program differentiates, though nothing that runs now says so."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outputs: list[torch.Tensor] = []
    with watch(model, tmp_path, optimizer):
        trained(model, optimizer)
        model.eval()
        for x in torch.ones(3, 2, 8):
            outputs.append(model(x))
            assert len(outputs[-1]) == 2
        assert all(output.requires_grad for output in outputs)
        use(outputs)
