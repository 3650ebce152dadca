"""What the syntax of a function tells of graphs that it keeps; and the probe's look at many that are alive together."""

import linecache
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import Place, RetainedGraphs, UnusedGraphs
from memguard.records.stats import Stage
from memguard.source.unneeded_graphs import is_made_of_itself, is_unneeded
from tests.evidence.loop import Loop, sees_saved_tensors

SUMMED = {
    "cat, mean, grad": """
        def f(model, data):
            kept = []
            for x, y in data:
                out = F.log_softmax(model(x), 1)
                kept.append(out.gather(1, y))  # here
            total = torch.cat(kept).mean()
            grads = torch.autograd.grad(total, list(model.parameters()))
            return [g.detach() ** 2 for g in grads]
    """,
    "stack, negative, backward": """
        def f(self, data):
            self.model.zero_grad()
            kept = []
            for x, y in data:
                kept.append(F.nll_loss(self.model(x), y))  # here
                if len(kept) >= 30:
                    break
            loss = -torch.stack(kept).sum() / len(kept)
            loss.backward()
            for n, p in self.model.named_parameters():
                self.fisher[n] = p.grad.clone() ** 2
            self.model.train()
    """,
    "unbind, a gradient of each": """
        def f(self, data):
            kept = []
            for x, y in data:
                kept += [F.log_softmax(self(x), dim=1)[range(8), y]]  # here
            kept = torch.cat(kept).unbind()
            grads = zip(*[autograd.grad(l, self.parameters(), retain_graph=(i < len(kept)))
                          for i, l in enumerate(kept, 1)])
            grads = [torch.stack(g) for g in grads]
            return {n: (g ** 2).mean(0) for n, g in zip(self.names, grads)}
    """,
    "a running sum": """
        def f(model, data, params):
            kept = 0.0
            for i, (x, y) in enumerate(data):
                kept = kept + F.cross_entropy(model(x), y)  # here
                if i % 10 == 0:
                    print("so far", kept.item())
            return torch.autograd.grad(kept / len(data), params)
    """,
    "with a progress bar": """
        def f(model, data, params):
            kept = []
            with tqdm(data) as bar:
                for x, y in bar:
                    kept.append(F.cross_entropy(model(x), y))  # here
                    bar.set_postfix(loss=kept[-1].item())
            out = torch.autograd.grad(sum(kept), params)
            return out
    """,
    "a loop over what was kept": """
        def f(model, data, params):
            kept = []
            for x, y in data:
                kept.append(F.cross_entropy(model(x), y))  # here
            total = [torch.zeros_like(p) for p in params]
            for loss in kept:
                for t, g in zip(total, torch.autograd.grad(loss, params)):
                    t.add_(g * g)
            return total
    """,
}
NEEDED = {
    "an optimizer's step": """
        def f(model, data, opt):
            kept = []
            for x, y in data:
                kept.append(F.cross_entropy(model(x), y))  # here
            opt.zero_grad()
            sum(kept).backward()
            opt.step()
    """,
    "given back": """
        def f(policy, env):
            kept = []
            for _ in range(200):
                kept.append(policy(env.state).log_prob(env.act()))  # here
            return torch.stack(kept)
    """,
    "given back with its gradient": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            loss = torch.stack(kept).mean()
            return loss, torch.autograd.grad(loss, params, retain_graph=True)
    """,
    "one loss of all": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x))  # here
            z = torch.cat(kept)
            loss = F.cross_entropy(z @ z.t(), torch.arange(len(z)))
            return torch.autograd.grad(loss, params)
    """,
    "a product": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            total = torch.stack(kept).mean()
            return torch.autograd.grad(total * total, params)
    """,
    "weighed by each other": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            total = torch.stack(kept)
            return torch.autograd.grad((total / total.sum()).max(), params)
    """,
    "a derivative of the derivative": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            grads = torch.autograd.grad(sum(kept), params, create_graph=True)
            return sum(g.pow(2).sum() for g in grads)
    """,
    "handed on": """
        def f(model, data, trainer):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            trainer.finish(kept)
            torch.stack(kept).mean().backward()
    """,
    "a backward of one's own": """
        def f(self, data):
            kept = []
            for x in data:
                kept.append(self.model(x).mean())  # here
            self.backward_and_update(torch.stack(kept).mean())
    """,
    "a gradient in the loop": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
                if len(kept) == 64:
                    sum(kept).backward()
                    kept = []
    """,
    "an attribute": """
        def f(self, data, params):
            for x in data:
                self.kept.append(self.model(x).mean())  # here
            return torch.autograd.grad(sum(self.kept), params)
    """,
    "a parameter": """
        def f(kept, model, data, params):
            for x in data:
                kept.append(model(x).mean())  # here
            return torch.autograd.grad(sum(kept), params)
    """,
    "put under an attribute": """
        def f(self, data, params):
            kept = []
            for x in data:
                kept.append(self.model(x).mean())  # here
            self.losses = kept
            return torch.autograd.grad(sum(kept), params)
    """,
    "a closure": """
        def f(model, data, params):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            def closure():
                return torch.stack(kept).mean()
            sum(kept).backward()
            return closure
    """,
    "an episode": """
        def f(policy, env, gamma):
            kept, rewards = [], []
            while not env.done:
                dist = policy(env.state)
                action = dist.sample()
                kept.append(dist.log_prob(action))  # here
                rewards.append(env.act(action))
            loss = torch.stack([-l * r for l, r in zip(kept, returns(rewards, gamma))]).sum()
            loss.backward()
            policy.optimizer.step()
    """,
    "nothing": """
        def f(model, data):
            kept = []
            for x in data:
                kept.append(model(x).mean())  # here
            return torch.stack(kept).mean().item()
    """,
}
VAIN = {
    "a recursion": """
        def f(model, v, params, depth):
            kept = [t.clone() for t in v]
            for i in range(depth):
                hv = hvp(F.cross_entropy(model(x()), y()), params, kept)
                kept = [a + 0.9 * b - c / 25 for a, b, c in zip(v, kept, hv)]  # here
                if i % 20 == 0:
                    print(f"{i}: {sum(h.norm() for h in kept).item():.3f}")
            return [h.detach() for h in kept]
    """,
    "one vector": """
        def f(model, v, params, depth):
            kept = v.clone()
            for _ in tqdm(range(depth)):
                loss = F.cross_entropy(model(x()), y())
                first = flat(torch.autograd.grad(loss, params, create_graph=True))
                hv = flat(torch.autograd.grad(first @ v, params, create_graph=True))
                kept = v + 0.99 * kept - hv / 25  # here
            return kept.cpu().detach().numpy()
    """,
    "norms of gradients": """
        def f(model, data, params):
            kept = []
            for x, y in data:
                g = torch.autograd.grad(F.cross_entropy(model(x), y), params, create_graph=True)
                kept.append(sum(p.pow(2).sum() for p in g))  # here
            return torch.stack(kept).mean().item()
    """,
}
USED = {
    "an inner loop": """
        def f(model, data, params, steps):
            kept = params
            for x, y in data:
                g = torch.autograd.grad(F.cross_entropy(call(model, kept, x), y), kept, create_graph=True)
                kept = [p - 0.1 * q for p, q in zip(kept, g)]  # here
            return kept
    """,
    "an outer loss": """
        def f(model, data, params, opt):
            kept = [p.clone() for p in params]
            for x, y in data:
                g = torch.autograd.grad(F.cross_entropy(call(model, kept, x), y), kept, create_graph=True)
                kept = [p - 0.1 * q for p, q in zip(kept, g)]  # here
            loss = F.cross_entropy(call(model, kept, x), y)
            loss.backward()
            return loss.item()
    """,
    "handed on afterwards": """
        def f(model, data, params, outer):
            kept = [p.clone() for p in params]
            for x, y in data:
                g = torch.autograd.grad(F.cross_entropy(call(model, kept, x), y), kept, create_graph=True)
                kept = [p - 0.1 * q for p, q in zip(kept, g)]  # here
            return outer(kept).item()
    """,
    "handed on now and then": """
        def f(model, data, params, outer):
            kept = [p.clone() for p in params]
            for i, (x, y) in enumerate(data):
                g = torch.autograd.grad(F.cross_entropy(call(model, kept, x), y), kept, create_graph=True)
                kept = [p - 0.1 * q for p, q in zip(kept, g)]  # here
                if i % 100 == 99:
                    outer(kept)
    """,
    "put into a gradient": """
        def f(model, data, params):
            kept = [p.clone() for p in params]
            for x, y in data:
                g = torch.autograd.grad(F.cross_entropy(call(model, kept, x), y), kept, create_graph=True)
                kept = [p - 0.1 * q for p, q in zip(kept, g)]  # here
            for p, k in zip(params, kept):
                p.grad = p - k
    """,
    "given back as another type": """
        def f(model, data, v, depth):
            kept = v.clone()
            for x, y in data:
                kept = v + kept - hvp(model, x, y, kept)  # here
            return kept.float()
    """,
    "yielded": """
        def f(model, data, params):
            kept = params[0].clone()
            for x, y in data:
                kept = kept - hvp(model, kept, x, y)  # here
                yield kept
    """,
}


def place_in(text: str, tmp_path: Path) -> Place:
    """The statement of a program that is marked."""
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text))
    lines = path.read_text().splitlines()
    line = next(number for number, one in enumerate(lines, 1) if "# here" in one)
    linecache.checkcache(str(path))
    return Place(
        file=str(path),
        line=line,
        function="f",
        holder="self.kept" if "self.kept.append" in text else "kept",
        source=lines[line - 1].strip(),
    )


@pytest.mark.parametrize("case", SUMMED)
def test_a_sum_that_is_differentiated_at_once_needs_one_graph_at_a_time(case: str, tmp_path: Path) -> None:
    """Its gradient is the sum of those of its parts."""
    place = place_in(SUMMED[case], tmp_path)
    assert is_unneeded(place, used=False) and not is_unneeded(place, used=True)
    assert not is_made_of_itself(place)


@pytest.mark.parametrize("case", NEEDED)
def test_what_is_needed_or_may_be_is_none(case: str, tmp_path: Path) -> None:
    """A step of training, a loss of all together, what leaves the function: all of the graphs have their use."""
    assert not is_unneeded(place_in(NEEDED[case], tmp_path), used=False)


@pytest.mark.parametrize("case", VAIN)
def test_a_state_of_which_the_value_alone_leaves_the_function_needs_no_graph(case: str, tmp_path: Path) -> None:
    """No backward can come any more once the function has ended, and there is none in it."""
    assert is_unneeded(place_in(VAIN[case], tmp_path), used=True)


@pytest.mark.parametrize("case", USED)
def test_a_state_that_an_outer_loss_may_run_through_has_its_graph(case: str, tmp_path: Path) -> None:
    """An inner loop gives its weights back, or goes on with them."""
    assert not is_unneeded(place_in(USED[case], tmp_path), used=True)


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("h = [a - b for a, b in zip(h, g)]", True),
        ("state = cell(x, state)", True),
        ("h = h + x", False),
        ("h += x", False),
        ("h.append(x)", False),
        ("h = [x]", False),
        ("for h in", False),
    ],
)
def test_a_state_is_made_from_itself(source: str, made: bool) -> None:
    """A running sum or a list is none."""
    assert is_made_of_itself(Place(source=source, holder=source.split()[0].partition(".")[0])) is made


# What the probe sees of them


def batches(count: int) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Random data."""
    return ((torch.randn(64, 32), torch.randint(0, 4, (64,))) for _ in range(count))


def fisher(model: nn.Module, count: int) -> torch.Tensor:
    """The gradient of all at once."""
    likelihoods = []
    for x, y in batches(count):
        out = F.log_softmax(model(x), 1)
        likelihoods.append(out.gather(1, y[:, None]))  # keeps
    return torch.autograd.grad(torch.cat(likelihoods).mean(), list(model.parameters()))[0] ** 2


def listed(model: nn.Module, count: int) -> torch.Tensor:
    """Likewise, while the list has no name yet."""
    losses = [F.cross_entropy(model(x), y) for x, y in batches(count)]  # keeps
    return torch.autograd.grad(torch.stack(losses).mean(), list(model.parameters()))[0] ** 2


def contrasted(model: nn.Module, count: int) -> torch.Tensor:
    """One loss of all the answers."""
    answers = []
    for x, _ in batches(count):
        answers.append(model(x).mean(0))
    z = torch.stack(answers)
    return torch.autograd.grad(F.cross_entropy(z @ z.t(), torch.arange(len(z))), list(model.parameters()))[0]


def one_by_one(model: nn.Module, count: int) -> torch.Tensor:
    """As it should be."""
    total = torch.zeros(())
    for x, y in batches(count):
        total = total + torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))[0].norm()
    return total


def episode(model: nn.Module, count: int) -> torch.Tensor:
    """What a roll-out gives back."""
    kept = []
    for x, y in batches(count):
        kept.append(F.log_softmax(model(x), 1).gather(1, y[:, None]).sum())
    return torch.stack(kept)


def recursion(model: nn.Module, count: int) -> list[torch.Tensor]:
    """An estimate that nobody differentiates."""
    params = list(model.parameters())
    start = [torch.ones_like(p) for p in params]
    state = [v.clone() for v in start]
    for x, y in batches(count):
        first = torch.autograd.grad(F.cross_entropy(model(x), y), params, create_graph=True)
        second = torch.autograd.grad(first, params, [v.detach() for v in state], create_graph=True)
        state = [v + 0.9 * s - h / 25 for v, s, h in zip(start, state, second, strict=True)]  # carries
    return [s.detach() for s in state]


def adapted(model: nn.Module, count: int) -> torch.Tensor:
    """An inner loop of as many steps."""
    fast = dict(model.named_parameters())
    for x, y in batches(count):
        loss = F.cross_entropy(torch.func.functional_call(model, fast, (x,)), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {name: weight - 0.1 * g for (name, weight), g in zip(fast.items(), grads, strict=True)}
    return sum((weight.square().sum() for weight in fast.values()), torch.zeros(()))


def told(
    phase: Callable[[nn.Module, int], object],
    *,
    steps: int = 10,
    count: int = 30,
    total: int = 2**24,
    evaluates: bool = False,
) -> list[Any]:
    """What is told of a phase after some training; each of its forwards is a batch where it evaluates."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 384), nn.Tanh(), nn.Linear(384, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GraphsProbe, EvaluationProbe], device_total_bytes=total) as loop:
        for _ in loop.batches(steps):
            optimizer.zero_grad()
            for x, y in batches(1):
                F.cross_entropy(model(x), y).backward()
            optimizer.step()
        if evaluates:
            evaluation = loop.batches(count, Stage.VALIDATION)

            def begin(*given: object) -> None:
                next(evaluation)

            model.eval().register_forward_pre_hook(begin, prepend=True)
            phase(model, count)
            assert next(evaluation, None) is None
        else:
            for _ in loop.batches(1):
                phase(model, count)
    return [*loop.of(RetainedGraphs), *loop.of(UnusedGraphs)]


@sees_saved_tensors
@pytest.mark.parametrize(("phase", "holder"), [(fisher, "likelihoods"), (listed, None)])
def test_an_estimate_from_all_graphs_at_once_is_told(
    phase: Callable[[nn.Module, int], object], holder: str | None
) -> None:
    """In one phase without a step, by the 24th forward, before the gradient is taken."""
    (fact,) = told(phase)
    assert fact.together and not fact.carried and fact.graphs == 24 and (fact.bytes or 0) > 2**20
    assert fact.place.holder == holder and "# keeps" in linecache.getline(str(fact.place.file), fact.place.line or 0)


def test_an_estimate_in_eval_mode_is_no_evaluation() -> None:
    """It is told as graphs that are kept, and not as graphs that nobody uses; one loss of all is neither."""
    (fact,) = told(fisher, evaluates=True)
    assert type(fact) is RetainedGraphs and fact.together
    assert told(contrasted, evaluates=True) == []


@sees_saved_tensors
def test_a_recursion_that_keeps_its_graphs_is_a_carried_state() -> None:
    """Though nothing was ever trained."""
    (fact,) = told(recursion, steps=0)
    assert fact.together and fact.carried
    assert fact.place.holder == "state" and "# carries" in linecache.getline(str(fact.place.file), fact.place.line or 0)


@pytest.mark.parametrize("phase", [one_by_one, episode, adapted, contrasted])
def test_other_phases_without_steps_are_silent(phase: Callable[[nn.Module, int], object]) -> None:
    """One graph at a time; those of a roll-out and of an inner loop, whose function gives them back."""
    assert told(phase) == []


def test_few_or_small_graphs_and_an_untrained_model_are_silent() -> None:
    """Nothing is known yet of how the model is trained, or too little memory is at stake."""
    assert told(fisher, steps=4) == []
    assert told(fisher, count=20) == []
    assert told(fisher, total=2**30) == []
