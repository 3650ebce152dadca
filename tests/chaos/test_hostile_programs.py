"""Programs that do to a guarded model what programs do: each behaves as it would without memguard."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from tests.chaos.training import (
    Guarding,
    Numbers,
    assert_same,
    batches,
    first_lines,
    net,
    random_state,
    seed,
    train,
    unguarded,
    watched,
    weights,
)

PROGRAMS: list[Callable[[Guarding], Numbers]] = []


def program(run: Callable[[Guarding], Numbers]) -> Callable[[Guarding], Numbers]:
    PROGRAMS.append(run)
    return run


def step(model: Any, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach().clone()


class Hostile(nn.Module):
    """Everything that a guard could ask of it raises, save what torch itself needs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner",):
            return super().__getattr__(name)
        raise AttributeError(name) if name.startswith("_") else RuntimeError(f"asked for {name}")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = nn.Module.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("shown")

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise RuntimeError("asked for its truth")

    def __len__(self) -> int:
        raise RuntimeError("counted")

    def __iter__(self) -> Any:
        raise RuntimeError("walked")


@program
def hostile_module(guarding: Guarding) -> Numbers:
    """A module whose dunder methods all raise."""
    seed()
    model = Hostile()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
        model.eval()
        numbers += [model(x).detach() for x, _ in batches(2)]
    return [*numbers, *weights(model)]


class HostileBatch(dict[Any, Any]):
    """A batch that answers nothing but what the loop asks."""

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            raise RuntimeError("asked for something else")
        return super().__getitem__(key)

    def __len__(self) -> int:
        raise RuntimeError("counted")

    def __iter__(self) -> Any:
        raise RuntimeError("walked")

    def items(self) -> Any:
        raise RuntimeError("walked")

    values = keys = items

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


@program
def hostile_batches(guarding: Guarding) -> Numbers:
    """Batches and outputs whose methods raise."""
    seed()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, batch: Any) -> Any:
            return HostileBatch(logits=self.net(batch["x"]))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer) as guard:
        loader: Any = [HostileBatch(x=x, y=y) for x, y in batches(4)]
        for batch in guard.batches(loader) if guard is not None else loader:
            loss = functional.cross_entropy(model(batch)["logits"], batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            numbers.append(loss.detach().clone())
    return [*numbers, *weights(model)]


@program
def iterable_dataset_without_a_length(guarding: Guarding) -> Numbers:
    """A DataLoader whose __len__ raises."""

    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return batches(4)

    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer) as guard:
        loader: Any = torch.utils.data.DataLoader(Endless(), batch_size=None)
        return [step(model, optimizer, x, y) for x, y in (guard.batches(loader) if guard is not None else loader)]


@program
def threads_call_the_model(guarding: Guarding) -> Numbers:
    """As DataParallel does it: several threads call the model, in both modes, while it trains."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers: Numbers = []

    def work(x: torch.Tensor, results: dict[int, torch.Tensor], number: int) -> None:
        results[number] = model(x)

    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
            model.eval()
            results: dict[int, torch.Tensor] = {}
            threads = [threading.Thread(target=work, args=(x, results, number)) for number in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            numbers += [torch.tensor(results[number].requires_grad) for number in range(3)]
            sum(result.sum() for result in results.values()).backward()  # type: ignore[union-attr]
            numbers += [results[number].detach() for number in range(3)]
            model.train()
    return [*numbers, *weights(model)]


@program
def exceptions_of_the_user(guarding: Guarding) -> Numbers:
    """A step that fails at each of its places, in both modes, and goes on."""
    seed()
    fail: list[str] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.net(x)
            if fail:
                raise {"error": ValueError, "interrupt": KeyboardInterrupt, "exit": SystemExit}[fail.pop()]("mine")
            return y

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(3):
            for kind in ("error", "interrupt", "exit"):
                for training in (True, False):
                    model.train(training)
                    fail.append(kind)
                    with pytest.raises((ValueError, KeyboardInterrupt, SystemExit), match="mine"):
                        model(x)
                    model.train()
                    numbers.append(step(model, optimizer, x, y))
                    numbers.append(torch.tensor(torch.is_grad_enabled()))
    return [*numbers, *weights(model)]


@program
def model_replaced_moved_copied_between_batches(guarding: Guarding) -> Numbers:
    """Deep copies, pickles, shallow copies, dtype changes, swapped children, a load of the state."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for number, (x, y) in enumerate(batches(8)):
            numbers.append(step(model, optimizer, x, y))
            if number == 0:
                numbers.append(copy.deepcopy(model).eval()(x).detach())
            elif number == 1:
                numbers.append(pickle.loads(pickle.dumps(model)).eval()(x).detach())
            elif number == 2:
                numbers.append(copy.copy(model)(x).detach())
            elif number == 3:
                model.double().float()
            elif number == 4:
                model[1] = nn.GELU()
            elif number == 5:
                model.load_state_dict(net().state_dict())
            elif number == 6:
                model[0] = nn.Linear(8, 16)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [*numbers, *weights(model)]


@program
def quantized_between_batches(guarding: Guarding) -> Numbers:
    """A dynamically quantized copy answers beside the training."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            numbers.append(step(model, optimizer, x, y))
            small = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
            numbers.append(small.eval()(x).detach())
    return [*numbers, *weights(model)]


@program
def garbage_is_not_collected(guarding: Guarding) -> Numbers:
    """Gc is disabled throughout."""
    gc.disable()
    try:
        return train(guarding)
    finally:
        gc.enable()


@program
def deterministic_algorithms(guarding: Guarding) -> Numbers:
    """Deterministic mode fills new memory: whoever makes tensors shows."""
    torch.use_deterministic_algorithms(True)
    try:
        return train(guarding)
    finally:
        torch.use_deterministic_algorithms(False)


@program
def default_device_and_dtype(guarding: Guarding) -> Numbers:
    """A default device is a mode on the stack; it is set and taken back inside."""
    seed()
    torch.set_default_device("cpu")
    torch.set_default_dtype(torch.float64)
    try:
        model = net().float()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with guarding(model, optimizer):
            numbers = [step(model, optimizer, x.float(), y) for x, y in batches(3)]
            torch.set_default_device(None)
            numbers += [step(model, optimizer, x.float(), y) for x, y in batches(3)]
            torch.set_default_device("meta")
            numbers.append(torch.tensor(torch.empty(1).is_meta, device="cpu"))
            numbers += [model.eval()(x.float()).detach() for x, _ in [*batches_on_cpu()]]
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    return [*numbers, *weights(model)]


def batches_on_cpu() -> Any:
    with torch.device("cpu"):
        return list(batches(2))


@program
def inference_mode_inside(guarding: Guarding) -> Numbers:
    """Tensors of inference mode go through the model, and its outputs are used after it."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = []
    with guarding(model, optimizer):
        for x, y in batches(4):
            numbers.append(step(model, optimizer, x, y))
            with torch.inference_mode():
                inside = model(x)
            numbers.append(torch.tensor(inside.is_inference()))
            model.eval()
            numbers.append(model(inside.new_ones(4, 8).clone()).detach())
            model.train()
    return [*numbers, *weights(model)]


@program
def function_transforms(guarding: Guarding) -> Numbers:
    """grad, vmap, jvp and jacrev of a functional call of the model."""
    seed()
    model = net().eval()
    parameters = dict(model.named_parameters())
    numbers: Numbers = []

    def loss(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    with guarding(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
            numbers += [value.detach() for value in per_sample.values()]
            numbers.append(torch.func.jacrev(model)(x).detach())
            numbers.append(torch.func.jvp(model, (x,), (torch.ones_like(x),))[1].detach())
            numbers.append(torch.func.hessian(lambda z: model(z).sum())(x[0]).detach())
    return numbers


@program
def traced_and_exported(guarding: Guarding) -> Numbers:
    """torch.jit.trace, torch.fx, torch.export and make_fx of the model."""
    from torch.fx.experimental.proxy_tensor import make_fx

    seed()
    model = net().eval()
    numbers: Numbers = []
    with guarding(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, _ in batches(2):
            traced = torch.jit.trace(model, (x,))
            numbers.append(traced(x).detach())
            graph = torch.fx.symbolic_trace(model)
            numbers += [graph(x).detach(), torch.tensor(len(graph.graph.nodes))]
            exported = torch.export.export(model, (x,))
            numbers += [exported.module()(x).detach(), torch.tensor(len(exported.graph.nodes))]
            made = make_fx(model)(x)
            numbers.append(made(x).detach())
    return numbers


@program
def compiled_inside(guarding: Guarding) -> Numbers:
    """A model with a part compiled as one graph, and a compiled step of the optimizer."""
    seed()
    torch._dynamo.reset()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
            self.part = torch.compile(self.second, backend="eager", fullgraph=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(self.first(x))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    advance = torch.compile(lambda: optimizer.step(), backend="eager")
    numbers = []
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            model.eval()
            numbers.append(model(x).detach())
            model.train()
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            advance()
            numbers.append(loss.detach().clone())
            numbers.append(torch.compile(model, backend="eager")(x).detach())
    torch._dynamo.reset()
    return [*numbers, *weights(model)]


@program
def very_deep_module(guarding: Guarding) -> Numbers:
    """Modules in modules, near the recursion limit."""
    seed()
    model: nn.Module = nn.Linear(8, 4)
    for _ in range(150):
        model = nn.Sequential(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
        model.eval()
        numbers += [model(x).detach() for x, _ in batches(2)]
    return [*numbers, *weights(model)]


@program
def many_parameters(guarding: Guarding) -> Numbers:
    """Two thousand parameters in a hundred modules."""
    seed()
    model = nn.ModuleList(nn.ParameterList(torch.randn(1) for _ in range(20)) for _ in range(100))
    model.forward = lambda x: sum(part[0] for part in model) * x.sum()  # type: ignore[method-assign, index, misc]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = []
        for x, _ in batches(3):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        numbers.append(torch.stack([p.detach()[0] for p in model.parameters()]))
    return numbers


@program
def mixed_devices(guarding: Guarding) -> Numbers:
    """A model in parts on two kinds of device."""
    seed()
    model = nn.ModuleDict({"real": nn.Linear(8, 4), "ghost": nn.Linear(8, 4, device="meta")})

    def forward(x: torch.Tensor) -> Any:
        return {"real": model["real"](x), "ghost": model["ghost"](x.to("meta")), "none": None, "n": 3}

    model.forward = forward  # type: ignore[method-assign]
    numbers = []
    with guarding(model):
        for x, y in batches(3):
            out = model(x)
            functional.cross_entropy(out["real"], y).backward()
            out["ghost"].sum().backward()
            numbers += [out["real"].detach(), torch.tensor(out["ghost"].shape)]
    return numbers


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_a_program_behaves_as_without_memguard(
    run: Callable[[Guarding], Numbers], device: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Numbers equal, nothing raised, nothing failed inside."""
    truth = [*run(unguarded), *random_state()]
    numbers = [*run(watched(tmp_path, device=device)), *random_state()]
    assert_same(numbers, truth)
    assert first_lines(caplog.records) == []


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_a_program_behaves_under_two_guards(
    run: Callable[[Guarding], Numbers], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A guard inside a guard on the same model; they close in the order in which they opened."""

    class Two:
        def __init__(self, *args: Any) -> None:
            self.guards = [
                memguard.watch(*args, logdir=tmp_path / name, quiet=True, device="cpu") for name in ("a", "b")
            ]

        def __enter__(self) -> Any:
            return [guard.__enter__() for guard in self.guards][1]

        def __exit__(self, *error: Any) -> None:
            for guard in self.guards:
                guard.__exit__(*error)

    assert_same(run(Two), run(unguarded))
    assert first_lines(caplog.records) == []


def test_unwrap_inside_a_forward_hook(tmp_path: Path) -> None:
    """The guard goes while a forward that it guards is open, in any hook: gradients are there again."""
    for place in ("pre", "post", "child"):
        model = net().eval()
        memguard.wrap(model, logdir=tmp_path, quiet=True, device="cpu")
        done: list[bool] = []

        def unwrap(*args: object, model: nn.Module = model, done: list[bool] = done) -> None:
            if not done:
                done.append(True)
                memguard.unwrap(model)

        target = model[0] if place == "child" else model
        if place == "pre":
            target.register_forward_pre_hook(unwrap)
        else:
            target.register_forward_hook(unwrap)
        model(torch.ones(1, 8))
        assert done and torch.is_grad_enabled()
        assert model(torch.ones(1, 8)).requires_grad


def test_wrapping_twice_and_a_watch_inside(tmp_path: Path) -> None:
    """wrap, wrap again, and a watch of the same model in the middle: all of them go as they came."""
    model = net()
    twin = copy.deepcopy(model)
    memguard.wrap(model, logdir=tmp_path, quiet=True, device="cpu")
    memguard.wrap(model)
    assert_same(train(watched(tmp_path, device="cpu"), model=model), train(unguarded, model=twin))
    memguard.unwrap(model)
    assert not model._forward_hooks and not model._forward_pre_hooks


def test_disabled_means_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MEMGUARD_DISABLE=1: the same numbers, and not a file."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    assert_same(train(watched(tmp_path)), train(unguarded))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_forward_leaves_recording_and_guard_working(tmp_path: Path) -> None:
    """KeyboardInterrupt in a training forward, as in a notebook: later batches are recorded as before."""
    model = net()
    interrupt: list[bool] = []

    def stop(*args: object) -> None:
        if interrupt:
            interrupt.pop()
            raise KeyboardInterrupt

    model[1].register_forward_hook(stop)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for x, y in batches(3):
            step(model, optimizer, x, y)
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        for x, y in batches(3):
            step(model, optimizer, x, y)
        assert len(guard.records) >= 6
        model.eval()
        assert not model(x).requires_grad
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        with torch.no_grad():
            assert not model(x).requires_grad
        model.train()
        assert model(x).requires_grad


def test_nothing_of_ours_is_in_the_process_without_a_guard() -> None:
    """After all of the above, no module of torch's carries a function of memguard's."""
    assert "memguard" not in str(getattr(torch.optim.Optimizer.add_param_group, "__module__", ""))
    assert "memguard" not in str(getattr(torch.UntypedStorage.resize_, "__module__", ""))
    assert not sys.excepthook.__module__.startswith("memguard")


def test_the_first_finding_draws_no_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich draws one when it is imported, which happens in the middle of a training: the program's stream stays."""
    import io
    import random

    from memguard.findings import Finding, Severity
    from memguard.sinks.console import print_finding

    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    before = random.getstate()
    print_finding(
        Finding(code="MG101", name="retained-graph", severity=Severity.WARNING, message="kept", advice="detach"),
        io.StringIO(),
    )
    assert random.getstate() == before
