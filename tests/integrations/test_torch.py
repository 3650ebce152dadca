import contextlib
import copy
import io
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import memguard
from memguard.integrations.session import open_sessions
from memguard.recording.reader import Recording, find_recordings
from memguard.records.findings import Severity
from memguard.records.stats import Stage
from memguard.report.runs import load_run
from memguard.report.text import render
from tests.hooks import hooks_inside
from tests.integrations.programs import batches, net


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    for x, y in batches(count):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def traces_of(model: nn.Module) -> list[object]:
    """Everything that hooks leave on the modules of a model."""
    return [
        (name, key, len(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if "hook" in key and isinstance(value, dict) and value
    ] + list(hooks_inside(model))


def test_wrap_gives_the_same_object_back_and_unwrap_leaves_no_trace(tmp_path: Path) -> None:
    """The loop stays as it is; afterwards the model is as it was."""
    model = net()
    state, before = {k: v.clone() for k, v in model.state_dict().items()}, traces_of(model)
    assert memguard.wrap(model, logdir=tmp_path, quiet=True) is model
    assert list(model.state_dict()) == list(state)
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 70)
    assert memguard.unwrap(model) is model
    assert traces_of(model) == before
    assert len(Recording.open(find_recordings(tmp_path)[0])) == 70


def test_unwrapping_what_is_not_wrapped_says_so() -> None:
    """A clear error instead of silence."""
    with pytest.raises(memguard.MemGuardError, match="Sequential is not wrapped"):
        memguard.unwrap(net())


def test_what_is_no_module_is_refused() -> None:
    """The type is named."""
    with pytest.raises(TypeError, match="list"):
        memguard.wrap([net()])


def test_a_misspelt_option_is_answered_with_all_that_are_taken() -> None:
    """Those that are no settings of the run stand among them."""
    for front_door in (memguard.wrap, memguard.watch):
        with pytest.raises(TypeError, match=r"no option 'quite'; the options are logdir, .*export, writer, quiet$"):
            front_door(net(), quite=True)


def test_an_engines_optimizer_counts_as_the_one_in_it(tmp_path: Path) -> None:
    """DeepSpeed's is no torch optimizer but has one; one without any is found at its first step, as always."""
    model = net()
    inner = torch.optim.SGD(model.parameters(), 0.1)
    around = SimpleNamespace(optimizer=SimpleNamespace(optimizer=inner))
    for given in (around, [around], SimpleNamespace(step=inner.step)):
        with memguard.watch(model, given, logdir=tmp_path, quiet=True) as guard:  # type: ignore[arg-type]
            for _ in range(3):
                model(torch.randn(2, 8)).sum().backward()
                inner.step()
        assert guard.records[-1].optimizer_steps == 3
    with pytest.raises(TypeError, match="optimizer"):
        memguard.watch(model, 5)  # type: ignore[arg-type]


def test_wrapping_twice_changes_nothing(tmp_path: Path) -> None:
    """Two wraps of one model count as one."""
    model = net()
    memguard.wrap(model, logdir=tmp_path, quiet=True)
    hooks = traces_of(model)
    memguard.wrap(model)
    assert traces_of(model) == hooks
    memguard.unwrap(model)


def test_several_models_share_one_guard(tmp_path: Path) -> None:
    """The second wrap joins the first; the last unwrap ends the run."""
    first, second = net(), net()
    memguard.wrap(first, logdir=tmp_path, quiet=True)
    memguard.wrap(second)
    memguard.unwrap(first)
    assert Recording.open(find_recordings(tmp_path)[0]).end is None
    memguard.unwrap(second)
    recordings = find_recordings(tmp_path)
    assert len(recordings) == 1
    assert Recording.open(recordings[0]).end is not None


def test_a_further_model_joins_with_the_options_of_the_first_or_none(tmp_path: Path) -> None:
    """Whatever way the same directory is given."""
    models = [net(), net(), net()]
    memguard.wrap(models[0], device="virtual:8MiB", logdir=tmp_path, ignore=["MG101"], quiet=True)
    memguard.wrap(models[1], device="virtual:8MiB", logdir=str(tmp_path), ignore="MG101")
    memguard.wrap(models[2])
    assert len(open_sessions()) == 1
    memguard.unwrap()
    assert open_sessions() == [] and [traces_of(model) for model in models] == [[], [], []]
    assert memguard.unwrap() is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"device": "virtual:4MiB"}, r"device='virtual:4MiB' \(there it is 'virtual:8MiB'\)"),
        ({"logdir": "elsewhere"}, "logdir='elsewhere'"),
        ({"ignore": ["MG101"]}, r"ignore=\('MG101',\)"),
        ({"device": "auto"}, "device='auto'"),
        ({"quiet": True}, "quiet=True"),
    ],
)
def test_a_further_model_with_other_options_is_refused(options: dict[str, Any], told: str, tmp_path: Path) -> None:
    """The error names the option and both ways on; the open run goes on."""
    first, second = net(), nn.Linear(2, 2)
    memguard.wrap(first, device="virtual:8MiB", logdir=tmp_path)
    with pytest.raises(memguard.MemGuardError, match=rf"Sequential is wrapped already.* {told}.*memguard.unwrap\(\)"):
        memguard.wrap(second, **options)
    assert len(open_sessions()) == 1 and traces_of(first) and not traces_of(second)
    memguard.unwrap(first)


@pytest.mark.parametrize("model", ["another", "unreachable", "the same"])
def test_other_options_begin_a_new_run_where_no_other_model_is_left(model: str, tmp_path: Path) -> None:
    """As in a notebook, where a cell is run again with a smaller device: the first run is closed as ever."""
    wrapped = memguard.wrap(net(), device="virtual:8MiB", logdir=tmp_path / "a", quiet=True)
    if model != "the same":
        if model == "unreachable":
            wrapped.itself = [wrapped]  # type: ignore[assignment]
        wrapped = net()
    memguard.wrap(wrapped, device="virtual:4MiB", logdir=tmp_path / "b", quiet=True)
    steps(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1), 2)
    (session,) = open_sessions()
    assert session.options.device == "virtual:4MiB"
    memguard.unwrap(wrapped)
    assert traces_of(wrapped) == []
    ended = [Recording.open(find_recordings(tmp_path / name)[0]) for name in ("a", "b")]
    assert [len(recording) for recording in ended] == [0, 2]
    assert all(recording.end is not None for recording in ended)


def test_copies_and_pickles_carry_no_live_hook(tmp_path: Path) -> None:
    """An EMA copy reports nothing; a pickle and torch.save load without memguard."""
    model = net()
    with memguard.watch(model, logdir=tmp_path, quiet=True) as guard:
        twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        buffer = io.BytesIO()
        torch.save(model, buffer)
        twins.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=False))
        for twin in twins:
            twin(torch.randn(2, 8))
        assert guard.records == []
        assert not guard.session.recorder.batch_is_open
        assert b"memguard" not in pickle.dumps(model)
        assert b"memguard" not in buffer.getvalue()


def test_watch_needs_no_model(tmp_path: Path) -> None:
    """A device can be watched alone, with exact batches."""
    with memguard.watch(device="cpu", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches([torch.ones(3), torch.ones(4)]):
            pass
    assert [(record.stage, record.index) for record in guard.records] == [(Stage.OTHER, 0), (Stage.OTHER, 1)]


def test_batches_are_exact_and_hold_nothing(tmp_path: Path) -> None:
    """The iterator counts every batch of the loader, whatever the loop does with it, and keeps none alive."""
    import weakref

    model, alive = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    class Batch:
        def __init__(self, size: int) -> None:
            self.x = torch.ones(size, 8)

    def make(size: int) -> Batch:
        batch = Batch(size)
        alive.append(weakref.ref(batch))
        return batch

    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        for batch in guard.batches(map(make, (2, 3, 4)), epoch=5):
            for _ in range(2):
                model(batch.x).sum().backward()
                optimizer.step()
            del batch
            assert alive[-1]() is None
    assert [(r.index, r.epoch, r.stage) for r in guard.records] == [(i, 5, Stage.TRAIN) for i in range(3)]


def test_each_batch_of_a_batches_loop_is_in_the_stage_of_its_models(tmp_path: Path) -> None:
    """The first ones too: of training after an evaluation, and of an evaluation after training."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        for epoch in range(3):
            model.train()
            for x, _ in guard.batches(list(batches(4)), epoch=epoch):
                model(x).sum().backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for x, _ in guard.batches(list(batches(2)), epoch=epoch):
                    model(x)
    told = [(record.stage, record.index) for record in guard.records]
    train, validation = [(Stage.TRAIN, i) for i in range(4)], [(Stage.VALIDATION, i) for i in range(2)]
    assert told == [*train, *validation] * 3


def test_leaving_a_batches_loop_early_is_fine(tmp_path: Path) -> None:
    """After a break, inference takes over again."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        for x, _ in guard.batches(list(batches(5))):
            model(x).sum().backward()
            break
        steps(model, optimizer, 3)
    assert len(guard.records) == 4


def test_an_exception_of_the_user_passes_and_the_recording_is_closed(tmp_path: Path) -> None:
    """The same exception object arrives, and the end says why."""
    model, error = net(), RuntimeError("the user's own")
    with pytest.raises(RuntimeError) as caught, memguard.watch(model, logdir=tmp_path, quiet=True):
        raise error
    assert caught.value is error
    end = Recording.open(find_recordings(tmp_path)[0]).end
    assert end is not None and "RuntimeError" in end["reason"]


def test_an_exception_inside_a_guarded_forward_brings_gradients_back(tmp_path: Path) -> None:
    """Grad mode is as it was, however the forward ends."""

    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("in the forward")

    model = Fails().eval()
    with memguard.watch(model, logdir=tmp_path, quiet=True):
        with pytest.raises(ValueError, match="in the forward"):
            model(torch.ones(1, 2))
        assert torch.is_grad_enabled()


def test_a_guard_that_nobody_opened_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever asks it for something raises, before any batch; its summary says why, and nothing is written."""
    guard = memguard.watch(net(), logdir=tmp_path)
    asks: list[Callable[[], object]] = [
        lambda: list(guard.batches([1, 2])),
        lambda: guard.records,
        lambda: guard.findings,
        lambda: guard.recording,
        guard.result,
        guard.scalars,
    ]
    for ask in asks:
        with pytest.raises(memguard.MemGuardError, match="never opened"):
            ask()
    assert "never opened" in guard.summary() and "`with memguard.watch(...) as guard:`" in guard.summary()
    assert "never opened" in guard._repr_html_()
    guard.close()
    assert "never opened" in capsys.readouterr().err and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["cpu", "virtual:8MiB"])
def test_a_guard_is_for_one_run(device: str, tmp_path: Path) -> None:
    """A second `with`, inside the first or after it, is refused, and leaves everything as it is."""
    model = net()
    with memguard.watch(model, device=device, logdir=tmp_path, quiet=True, progress=False) as guard:
        with pytest.raises(memguard.MemGuardError, match="make another"), guard:
            pass
        model(torch.randn(4, 8))
    before = traces_of(model)
    with pytest.raises(memguard.MemGuardError, match="make another"), guard:
        pass
    assert traces_of(model) == before
    assert open_sessions() == _get_current_dispatch_mode_stack() == []
    assert len(guard.records) == 1


def test_a_guard_that_was_closed_opens_no_more(tmp_path: Path) -> None:
    """Nobody would close it again."""
    guard = memguard.watch(net(), device="virtual:8MiB", logdir=tmp_path, quiet=True)
    guard.close()
    with pytest.raises(memguard.MemGuardError, match="make another"), guard:
        pass
    assert open_sessions() == _get_current_dispatch_mode_stack() == []


def test_batches_may_be_named_before_the_guard_is_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What counts is when they are asked for."""
    guard = memguard.watch(device="cpu", logdir=tmp_path, quiet=True)
    named = guard.batches([1, 2])
    with guard:
        assert list(named) == [1, 2]
    assert len(guard.records) == 2 and not caplog.records


def test_memguard_disable_makes_everything_a_no_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No hook, no file, no summary."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    model = net()
    memguard.wrap(model, logdir=tmp_path)
    with memguard.watch(model, logdir=tmp_path) as guard:
        assert list(guard.batches([1, 2])) == [1, 2]
    memguard.unwrap(model)
    assert traces_of(model) == []
    assert list(tmp_path.iterdir()) == []
    assert "disabled" in guard.summary()


def test_the_summary_tells_stages_and_cost(tmp_path: Path) -> None:
    """What stands at the end, in words."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        steps(model, optimizer, 3)
        model.eval()
        model(torch.ones(1, 8))
    text = guard.summary()
    assert "4 batches" in text
    assert "train" in text and "validation" in text
    assert "of the run's time" in text
    assert str(guard.recording) in text


def test_the_report_says_what_the_summary_said(tmp_path: Path) -> None:
    """Stages in one order, whichever came first, and every note of the run."""
    with memguard.watch(device="virtual:64MiB", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches([torch.ones(8), torch.ones(8)]):
            pass
        model = net()
        steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
        guard.add(model)
        for _ in guard.batches([0]):
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
        guard.session.recorder.failed("fireworks", RuntimeError("wet"))
    assert [stage.value for stage in guard.result().stages] == ["other", "train"]
    live, report = guard.summary().splitlines(), render(load_run([str(tmp_path)]).summary).splitlines()
    assert live == report
    assert [line.split()[0] for line in live[live.index("") + 2 :][:2]] == ["train", "other"]
    assert any(line.startswith("Note: memguard's fireworks failed") for line in live)


@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
def test_where_training_runs_on_another_thread_alone_that_one_is_guarded(device: str, tmp_path: Path) -> None:
    """From its second batch on; the next thread too, when it is over. Models called elsewhere still tell nothing."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(16):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 8)).sum()
            kept.append(loss)
            loss.backward()
            optimizer.step()

    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device=device) as guard:
        for expected in (15, 30):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert expected <= len(guard.records) <= expected + 1  # the second thread may have the first one's number
        with torch.no_grad():
            model(torch.ones(2, 8))
        assert expected <= len(guard.records) <= expected + 1
    assert [finding.code for finding in guard.findings if finding.severity >= Severity.WARNING] == ["MG101"]
    assert "another thread" not in guard.summary()
    peaks = [record.allocated_peak_bytes for record in guard.records]
    assert all(peaks) if device != "cpu" else not any(peaks)


def test_a_training_on_another_thread_is_no_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told as it happens, and by summary and report, which do not call that nothing to worry about."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        model(torch.ones(2, 8))  # the guarded thread is in use
        for _ in range(2):
            thread = threading.Thread(target=steps, args=(model, optimizer, 3))
            thread.start()
            thread.join()
        assert "Note: Sequential was trained on another thread" in guard.summary()
    assert [record.getMessage() for record in caplog.records] == [f"memguard: {guard.result().notes[-1]}."]
    report = render(load_run([str(tmp_path)]).summary)
    for text in (guard.summary(), report):
        assert "nothing to worry about" not in text and "Note: Sequential was trained on another" in text
        assert text.count("another thread") == 1
    assert load_run([str(tmp_path)]).summary.misses_training


def test_the_second_run_in_a_directory_goes_on_counting(tmp_path: Path) -> None:
    """Steps of our TensorBoard events only ever grow: a resumed run begins where the last one ended."""
    for expected in ([0, 1], [2, 3]):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
            steps(model, optimizer, 2)
        assert [record.batch for record in guard.records] == expected


@pytest.mark.parametrize("order", ["wrap then compile", "compile then wrap"])
def test_compile_has_no_extra_graph_break(order: str, tmp_path: Path) -> None:
    """Batches are still recorded, and dynamo sees one whole graph."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guarded = model if order == "wrap then compile" else torch.compile(model, backend="eager")
    with memguard.watch(guarded, optimizer, logdir=tmp_path, quiet=True) as guard:
        compiled = torch.compile(model, backend="eager") if guarded is model else guarded
        steps(compiled, optimizer, 5)
    assert sum(counters["graph_break"].values()) == 0
    assert counters["stats"]["unique_graphs"] == 1
    assert len(guard.records) >= 4
    torch._dynamo.reset()


def test_whose_the_peak_is_stands_in_the_recording(tmp_path: Path) -> None:
    """Bytes by owner at each new highest peak: they add up to it."""
    model = net(256)
    optimizer = torch.optim.AdamW(model.parameters())
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="virtual:64MiB") as guard:
        steps(model, optimizer, 20)
    owners = Recording.open(find_recordings(tmp_path)[0]).of_kind("owners")
    assert 0 < len(owners) < 10
    parts = [value for key, value in owners[-1].items() if key.endswith("_bytes")]
    assert sum(parts) == guard.records[owners[-1]["batch"]].allocated_peak_bytes
    size = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert owners[-1]["parameters_bytes"] == size
    assert 2 * size <= owners[-1]["optimizer_bytes"] <= 2 * size + 64


def test_two_models_side_by_side_are_asked_for_as_a_list() -> None:
    """The second argument is the optimizer; the error says how several models are given."""
    with pytest.raises(TypeError, match=r"watch\(\[a, b\]"):
        memguard.watch(nn.Linear(2, 2), nn.Linear(2, 2))  # type: ignore[arg-type]


def test_a_step_that_fails_ends_without_a_word(tmp_path: Path) -> None:
    """An optimizer that raises (its states do not fit) is no step for ever: the batches after it are recorded."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for batch in range(10):
            model(torch.ones(2, 4)).sum().backward()
            with contextlib.suppress(ZeroDivisionError):
                optimizer.step(lambda batch=batch: 1 / (batch != 3))
    assert [record.optimizer_steps for record in guard.records] == [1, 2, 3, 3, 4, 5, 6, 7, 8, 9]


def test_fast_weights_are_not_asked_for_gradients(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`functional_call` puts tensors with a graph where the parameters are: torch would warn, here as an error."""
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, device="cpu", logdir=tmp_path, quiet=True, progress=False) as guard:
        for x, y in guard.batches(list(batches(20))):
            slow = dict(model.named_parameters())
            inner = functional.cross_entropy(torch.func.functional_call(model, slow, (x,)), y)
            gradients = torch.autograd.grad(inner, list(slow.values()), create_graph=True)
            fast = {name: p - 0.1 * each for (name, p), each in zip(slow.items(), gradients, strict=True)}
            outer = functional.cross_entropy(torch.func.functional_call(model, fast, (x,)), y)
            optimizer.zero_grad()
            outer.backward()
            optimizer.step()
    assert "failed" not in caplog.text


def test_an_epoch_is_a_batches_loop_that_trains_to_its_end(tmp_path: Path) -> None:
    """The cache is emptied after each; evaluation, and a loop that is left early or by an error, are none."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"device": "virtual:1GiB", "empty_cache": "epoch", "logdir": tmp_path, "quiet": True, "progress": False}
    with memguard.watch(model, optimizer, **options) as guard:
        for epoch in range(3):
            for x, y in guard.batches(list(batches(4)), epoch=epoch):
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                for x, _ in guard.batches(list(batches(2))):
                    model(x)
            with torch.no_grad():
                for x, _ in guard.batches(list(batches(2))):
                    model(x)
        for x, y in guard.batches(batches(4)):
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            break
        with contextlib.suppress(KeyError):
            for x, y in guard.batches(batches(4)):
                functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                raise KeyError
    assert "the cache was emptied 3 times" in guard.summary()


def test_with_validation_off_it_is_not_reported_either(tmp_path: Path) -> None:
    """With "warn" it is."""
    told = {}
    for validation in ("warn", "off"):
        model = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 4))
        logdir = tmp_path / validation
        options = {"device": "virtual:1GiB", "logdir": logdir, "quiet": True, "progress": False}
        with memguard.watch(model, validation=validation, **options) as guard:
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1), 10)
            model.eval()
            for _ in range(6):
                model(torch.randn(512, 8))
        told[validation] = [finding.code for finding in guard.findings]
    assert told == {"warn": ["MG201"], "off": []}


def test_a_writer_that_is_none_is_refused() -> None:
    """Before the run, not at its end."""
    with pytest.raises(TypeError, match=r"writer must be a SummaryWriter.*got 3"):
        memguard.watch(net(), writer=3)


def test_where_the_loader_gives_no_tensors_the_forward_tells_the_shapes(tmp_path: Path) -> None:
    """A loop over numbers that makes its inputs itself has batches of a size, too."""
    model = net()
    with memguard.watch(model, logdir=tmp_path, quiet=True) as guard:
        for size in guard.batches(range(3, 6)):
            x = next(iter(batches(1)))[0]
            model(x[:1].repeat_interleave(size, 0)).sum().backward()
    recording = Recording.open(find_recordings(tmp_path)[0])
    shapes = [recording.shapes(recording.record(number).shapes) for number in range(3)]
    assert [entry[1][0] for [entry] in shapes] == [3, 4, 5]
