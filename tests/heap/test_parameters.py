from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.heap.parameters import ParameterAt, frozen_wholes, gradients_at, held_parameters, trainable
from memguard.heap.weak_keys import WeakIdentityDict


@pytest.fixture
def _swapping() -> Iterator[None]:
    """Modules are converted by swapping their tensors, as torch does by itself where weights are quantized."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)


def test_a_place_gives_what_is_there_now() -> None:
    """A parameter that was replaced is the new one; one that was taken away, or whose module is gone, is none."""
    model = nn.Linear(2, 2)
    place = ParameterAt(model, "weight")
    assert place() is model.weight
    model.weight = nn.Parameter(torch.zeros(2, 2))
    assert place() is model.weight
    model.weight = None  # type: ignore[assignment]
    assert place() is None
    del model
    assert place() is None


def test_frozen_ones_are_left_out() -> None:
    """In the order of ``parameters()``."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight.requires_grad_(False)
    assert [id(place()) for place in trainable(model)] == [id(p) for p in model.parameters() if p.requires_grad]


@pytest.mark.usefixtures("_swapping")
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_guarded_model_is_converted_like_any_other(by_hand: bool, tmp_path: Path) -> None:
    """In the middle of training, with gradients, by swapping: nothing of ours refers to its tensors."""
    teacher, student = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with memguard.watch([student, teacher], logdir=tmp_path, quiet=True):
        for batch in range(12):
            (student(teacher(torch.ones(2, 4)).detach()).sum() + 0 * teacher(torch.ones(2, 4)).sum()).backward()
            for model in (student, teacher):
                assert not any(weakref.getweakrefs(tensor) for p in model.parameters() for tensor in (p, p.grad))
            if batch in (2, 10):
                student.double().float()
                teacher.double().float()
            if by_hand:
                with torch.no_grad():
                    for parameter in student.parameters():
                        parameter -= 0.1 * parameter.grad
                student.zero_grad()
            else:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_gradients_of_a_scripted_module_are_found() -> None:
    """Its dictionaries are wrappers that have not all methods of one."""
    model = torch.jit.script(nn.Linear(2, 2))
    places = list(trainable(model))
    assert gradients_at(places) == []
    model(torch.ones(1, 2)).sum().backward()
    assert [gradient.shape for gradient in gradients_at(places)] == [(2, 2), (2,)]


def test_a_part_belongs_to_the_largest_module_without_a_held_parameter() -> None:
    """A reference inside a training module is not the module; a part of what is trained stands for itself."""
    reference, policy = (nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.ReLU()) for _ in range(2))
    training = nn.ModuleDict({"reference": reference, "policy": policy})
    held = {id(parameter) for parameter in policy.parameters()}
    frozen, trained = reference[0][0], policy[0][0]
    wholes = frozen_wholes([frozen, trained], held)
    assert wholes == {id(frozen): reference, id(trained): trained}
    assert frozen_wholes([frozen], held_parameters([]))[id(frozen)] is training


class Thing:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = None  # type: ignore[assignment]


def test_objects_are_told_apart_without_asking_them() -> None:
    """Objects that refuse to be hashed or compared have their own values."""
    entries: WeakIdentityDict[Thing, int] = WeakIdentityDict()
    one, other = Thing(), Thing()
    entries[one] = 1
    entries[one] = 2
    assert one in entries and other not in entries
    assert entries.get(one) == 2
    assert entries.get(other) is None and entries.get(other, 5) == 5
    assert entries.keys()[0] is one and list(entries.values()) == [2]
    assert entries.pop(one) == 2 and entries.pop(one) is None


def test_an_entry_goes_with_its_object() -> None:
    """Nothing is held, and a new object at the same address is another one."""
    entries: WeakIdentityDict[Thing, int] = WeakIdentityDict()
    thing = Thing()
    entries[thing] = 1
    del thing
    gc.collect()
    assert list(entries.values()) == [] and entries.keys() == []
