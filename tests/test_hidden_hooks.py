import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from memguard.torch_objects.hidden_hooks import HiddenHook, without_number
from tests.hooks import hook_dicts_of, hooks_on


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.layer(x) * scale


def double(module: nn.Module, args: Any, output: Any) -> Any:
    return output * 2


def saved(model: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.save({"model": model, "list": [model]}, file)
    return file.getvalue()


@pytest.fixture
def told() -> Iterator[list[str]]:
    yield []


def hidden(module: nn.Module, told: list[str]) -> list[HiddenHook]:
    """Both hooks of a root model, put on."""
    hooks = [
        HiddenHook(module, lambda m, args, kwargs: told.append(f"start {kwargs}"), before=True),
        HiddenHook(module, lambda m, args, output: told.append(f"end {output is not None}"), always=True),
    ]
    assert all(hook.put_on() for hook in hooks)
    return hooks


@pytest.mark.parametrize("write", [pickle.dumps, saved], ids=["pickle", "torch.save"])
@pytest.mark.parametrize("with_own", [False, True])
def test_what_is_written_of_a_module_is_the_same_to_the_byte(
    write: Callable[[nn.Module], bytes], with_own: bool, told: list[str]
) -> None:
    """With hooks of the program's own and without, before, during and after; copies have dictionaries of torch's."""
    model = Net()
    if with_own:
        model.register_forward_hook(double, always_call=True)
    before = write(model)
    hooks = hidden(model, told)
    model(torch.ones(1, 4))
    assert write(model) == before and told == ["start {}", "end True"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert hook_dicts_of(twin) == [] and len(twin._forward_hooks) == with_own
    for hook in hooks:
        hook.remove()
    assert write(model) == before and hooks_on(model) == []


def test_nobody_but_torch_sees_them(told: list[str]) -> None:
    """Length, truth, keys, values, items, equality and text are those of an empty OrderedDict; clear leaves ours."""
    model = Net()
    hidden(model, told)
    for hooks in (model._forward_hooks, model._forward_pre_hooks):
        assert not hooks and len(hooks) == 0 and hooks == OrderedDict() and repr(hooks) == repr(OrderedDict())
        assert [*hooks, *hooks.keys(), *hooks.values(), *hooks.items(), *hooks.copy(), *dict(hooks)] == []
        hooks.clear()
    model(torch.ones(1, 4), scale=2.0)
    assert told == ["start {'scale': 2.0}", "end True"]


def test_the_programs_hooks_work_as_ever(told: list[str]) -> None:
    """Handles from before, during and after remove their hooks; ours stand around all of them."""
    model = Net()
    order: list[str] = []
    earlier = model.register_forward_hook(lambda *args: order.append("earlier"), always_call=True)
    hooks = hidden(model, order)
    later = model.register_forward_pre_hook(lambda *args: order.append("later"), prepend=True, with_kwargs=True)
    model(torch.ones(1, 4))
    assert order == ["start {}", "later", "earlier", "end True"]
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 5))
    assert order[4:] == ["start {}", "later", "earlier", "end False"]
    earlier.remove()
    assert not model._forward_hooks and not vars(model)["_forward_hooks_always_called"]
    for hook in hooks:
        hook.remove()
    del order[:]
    model(torch.ones(1, 4))
    later.remove()
    model(torch.ones(1, 4))
    assert order == ["later"] and len(model._forward_pre_hooks) == 0


def test_numbers_of_handles_are_the_programs(told: list[str]) -> None:
    """Its hooks get the numbers that they would get without ours."""
    model = Net()
    number = RemovableHandle.next_id
    hidden(model, told)
    node = model(torch.ones(1, 4)).grad_fn
    assert node is not None
    without_number(node.register_prehook, lambda gradients: None)
    assert RemovableHandle.next_id == number


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_scripted_traced_and_encoder_layers_are_as_without(told: list[str]) -> None:
    """What looks for hooks finds none: a model can be scripted, a TransformerEncoderLayer takes its fast path."""
    model, layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    layer.eval()
    x, words = torch.randn(2, 4), torch.randn(2, 3, 8)
    with torch.no_grad():
        answers = model(x), layer(words)
        hidden(model, told)
        hidden(layer, told)
        assert torch.equal(torch.jit.script(model)(x), answers[0])
        assert torch.equal(torch.jit.script(copy.deepcopy(model))(x), answers[0])
        assert torch.equal(torch.jit.trace(model, x)(x), answers[0])
        assert torch.equal(layer(words), answers[1])


def test_a_module_that_is_gone_is_not_kept(told: list[str]) -> None:
    """The hook of a dead module is put on nowhere."""
    model = Net()
    hook = HiddenHook(model, lambda *args: None)
    del model
    assert not hook.put_on()
    hook.remove()


def test_all_modules_are_heard_and_the_process_shows_no_global_hook() -> None:
    """A hook on the calls of all modules, with the same secrecy."""
    called: list[str] = []
    hook = HiddenHook(None, lambda module, args: called.append(type(module).__name__), before=True)
    hook.put_on()
    try:
        assert not torch.nn.modules.module._has_any_global_hook()
        Net()(torch.ones(1, 4))
    finally:
        hook.remove()
    Net()(torch.ones(1, 4))
    assert called == ["Net", "Linear"]
