import json
import os

import pytest
import torch
from torch import nn

import memguard.forecast
from memguard.errors import MemGuardError
from memguard.forecast import forecast, forecast_of
from memguard.forecast.cards import find_card
from memguard.forecast.changes import HALF_BATCH, accumulated_twice
from memguard.forecast.child import StepError, in_child
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.study import Question, Study
from memguard.forecast.trace import Kind


def make():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(32, 256)

    def step():
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()

    return model, optimizer, step


PARAMETERS = 4 * (256 * 512 + 512 + 512 * 256 + 256)


def test_the_package_is_called_like_its_function():
    """`memguard.forecast(...)` works though a package has that name."""
    model, optimizer, step = make()
    found = memguard.forecast(step, model=model, optimizer=optimizer, device="1GiB", steps=1)
    assert found.verdict == "fits"


def test_a_live_model_is_not_touched():
    """Tracing leaves parameters, gradients, states and the random state as they were."""
    model, optimizer, step = make()
    weight, state = model[0].weight.clone(), torch.get_rng_state()
    forecast(step, model=model, optimizer=optimizer, device="1GiB")
    assert torch.equal(model[0].weight, weight)
    assert model[0].weight.device.type == "cpu" and model[0].weight.grad is None
    assert not optimizer.state
    assert torch.equal(torch.get_rng_state(), state)


def test_owners_at_the_peak_are_told_apart():
    """Parameters, gradients and AdamW's states have the sizes that arithmetic gives."""
    model, optimizer, step = make()
    found = forecast(step, model=model, optimizer=optimizer, device="1GiB")
    owners = {share.name: share.bytes for share in found.owners}
    assert owners["parameters"] == owners["gradients"] == PARAMETERS
    assert owners["optimizer states"] == 2 * PARAMETERS
    assert owners["inputs"] == 32 * 256 * 4


def test_first_step_starts_without_states():
    """Between later steps gradients and states stay; before the first there are parameters and inputs only."""
    model, optimizer, step = make()
    found = forecast(step, model=model, optimizer=optimizer, device="1GiB")
    first, steady = found.first_step, found.steady_step
    assert len(found.steps) == 3
    assert PARAMETERS <= first.allocated_start_bytes < 2 * PARAMETERS
    assert steady.allocated_start_bytes == first.allocated_end_bytes > 4 * PARAMETERS
    low, high = found.allocated_peak_bytes_range
    assert low <= found.allocated_peak_bytes <= high
    assert found.reserved_peak_bytes >= found.allocated_peak_bytes


def test_the_peak_has_a_line():
    """The allocation at which the peak is reached names the user's line."""
    model, optimizer, step = make()
    found = forecast(step, model=model, optimizer=optimizer, device="1GiB")
    assert found.peak_line is not None and found.peak_line.file == os.path.abspath(__file__)
    assert found.peak_line.source == "optimizer.step()"
    assert found.peak_phase == "optimizer"


def test_a_step_that_does_not_fit_says_so_and_what_would_help():
    """Out of memory gives the verdict, PyTorch's text, and suggestions."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)])
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.randn(8, 512)

    def step():
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()

    found = forecast(step, model=model, optimizer=optimizer, device="64MiB")
    assert found.verdict == "does not fit" and found.fits is False
    assert "out of memory" in (found.out_of_memory or "")
    assert "fused optimizer" in [suggestion.name for suggestion in found.suggestions]


@pytest.mark.parametrize("in_bf16", [True, False])
def test_what_the_step_does_already_is_not_tried(in_bf16):
    """A forward that runs under bf16 autocast is not traced once more under it; another one is, and is smaller."""
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(1 << 16, 64)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=in_bf16):
            loss = model(inputs).float().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    question = Question(card=find_card("64MiB"), steps=2, torch_version=torch.__version__)
    study = Study(lambda batch: (model, optimizer, step), question)
    found = in_child(lambda: [change.name for change, _, _ in study._tried()])
    assert ("bf16 autocast" in found) is not in_bf16


def test_cuda_in_the_step_is_believed():
    """Code that says cuda, autocast and GradScaler runs without a GPU, and its loss.item() gets a stand-in."""

    def step():
        assert torch.cuda.is_available()
        inputs = torch.randn(32, 256, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = on_gpu(inputs)
            assert out.dtype == torch.float16 and out.is_cuda and out.device.type == "cuda"
            loss = out.float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    def build(batch):
        nonlocal on_gpu, optimizer, scaler
        on_gpu = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
        optimizer = torch.optim.SGD(on_gpu.parameters(), 0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cuda")
        return on_gpu, optimizer, step

    on_gpu = optimizer = scaler = None
    found = memguard.forecast.forecast_of(build, device="nvidia-a100-40gb")
    assert found.verdict == "fits" and found.context_bytes > 0
    assert any("reads a value" in note for note in found.notes)


def test_the_largest_batch_is_tight():
    """One more sample than the largest batch does not run."""

    def build(batch):
        model = nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        size = batch or 1024

        def step():
            optimizer.zero_grad()
            model(torch.randn(size, 1024, device="cuda")).relu().sum().backward()
            optimizer.step()

        return model, optimizer, step

    options = {"device": "160MiB", "takes_batch": True, "steps": 1}
    largest = memguard.forecast.forecast_of(build, batch=1024, **options).largest_batch
    runs = [
        memguard.forecast.forecast_of(lambda _, n=n: build(n), device="160MiB", steps=1) for n in (largest, largest + 1)
    ]
    assert runs[0].out_of_memory is None
    assert runs[1].out_of_memory is not None


def test_the_safe_batch_needs_no_retries():
    """It is never above the largest that runs without them, however far above that others run."""

    def build(batch):
        model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())

        def step():
            inputs = torch.randn(batch, 256, device="cuda")
            nn.functional.mse_loss(model(inputs), inputs).backward()
            optimizer.step()
            optimizer.zero_grad()

        return model, optimizer, step

    found = forecast_of(build, batch=1024, device="96MiB", takes_batch=True, steps=2)
    smooth, careful = found.largest_batch_without_retries, found.largest_batch_with_margin
    assert smooth < 0.97 * found.largest_batch, "this step has no retries, so it shows nothing"
    assert 0 < careful <= smooth


def in_bf16(native_only=False):
    """A step under bf16 autocast, which refuses GPUs that only emulate it where it is told to."""
    model = nn.Linear(64, 64).cuda()

    def step():
        if native_only and not torch.cuda.is_bf16_supported(including_emulation=False):
            raise RuntimeError("this step needs a newer GPU")
        with torch.autocast("cuda", torch.bfloat16):
            model(torch.randn(8, 64, device="cuda")).sum().backward()

    return model, None, step


def test_old_cards_emulate_bfloat16():
    """Autocast takes it on every card, as torch itself does; who asks for the real thing is told the truth."""
    found = forecast_of(lambda batch: in_bf16(), device="nvidia-t4", cards=["v100-32gb", "a100-40gb"], steps=1)
    assert [row.verdict for row in found.table] == ["fits", "fits"] and found.verdict == "fits"


def test_a_card_that_cannot_run_the_step_is_one_row():
    """With its reason; the others have their verdicts."""
    found = forecast_of(lambda batch: in_bf16(native_only=True), cards=["t4", "a100-40gb"], steps=1)
    old, new = found.table
    assert (old.card, old.verdict, old.reserved_peak_bytes) == ("Tesla T4", None, None)
    assert "this step needs a newer GPU" in old.reason
    assert (new.card, new.verdict, new.reason) == ("A100 40 GB", "fits", None)


def test_inputs_are_resized_where_the_step_takes_no_batch():
    """Tensors of the closure whose first dimension is the batch get another size in the search."""
    model, optimizer, step = make()
    found = forecast(step, model=model, optimizer=optimizer, device="48MiB", batch=32, steps=1)
    assert found.largest_batch is not None and found.largest_batch > 32
    assert {row.batch for row in found.table} == {8, 16, 32, 64, 128}


def test_a_step_that_fails_with_resized_tensors_is_told_who_resized_them():
    """Weights of as many classes as the batch has samples look like an input; a parameter `batch` is the way out."""
    model, weights = nn.Linear(32, 8), torch.ones(8)
    optimizer = torch.optim.SGD(model.parameters())

    def run(inputs, classes):
        nn.functional.cross_entropy(model(inputs), classes, weight=weights).backward()
        optimizer.step()

    def step(inputs=torch.randn(8, 32), classes=torch.zeros(8, dtype=torch.long)):  # noqa: B008
        run(inputs, classes)
        return weights

    def step_of(batch=8):
        run(torch.randn(batch, 32), torch.zeros(batch, dtype=torch.long))

    with pytest.raises(MemGuardError, match=r"with a first dimension of 8.*parameter named batch"):
        forecast(step, model=model, optimizer=optimizer, device="64MiB", batch=8, steps=1)
    assert forecast(step_of, model=model, optimizer=optimizer, device="64MiB", batch=8, steps=1).largest_batch > 8


def test_library_workspaces_follow_the_version():
    """In 2.11 cuBLAS keeps a workspace for forward and for backward, and cuBLASLt its own; from 2.15 they return it."""
    model, optimizer, step = make()
    ends = [
        forecast(step, model=model, optimizer=optimizer, device="1GiB", torch_version=v).steady_step.allocated_end_bytes
        for v in ("2.11", "2.15")
    ]
    assert ends[0] - ends[1] == 2 * 8_519_680 + (1 << 20)


def test_gradients_that_the_engine_copies_stay_on_the_gpu():
    """An expanded gradient is cloned by the engine itself, onto the parameter's device."""

    def build(_):
        weight = nn.Parameter(torch.zeros(1, 8, device="cuda"))
        model = nn.ParameterList([weight])
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad()
            (weight + torch.zeros(1, 8, device="cuda")).sum().backward()
            assert weight.grad.is_cuda
            optimizer.step()

        return model, optimizer, step

    assert memguard.forecast.forecast_of(build, device="1GiB").verdict == "fits"


def test_json_has_the_same_names():
    """What to_json gives can be written, under the names of the fields."""
    model, optimizer, step = make()
    data = json.loads(json.dumps(forecast(step, model=model, optimizer=optimizer, device="1GiB", steps=1).to_json()))
    assert data["fits"] is True and data["verdict"] == "fits"
    assert set(data["steps"][0]) == {
        "allocated_start_bytes",
        "allocated_peak_bytes",
        "allocated_end_bytes",
        "reserved_peak_bytes",
    }


def test_a_step_that_raises_is_one_clear_error():
    """The user's exception comes back with its type, text and line."""
    model, optimizer, _ = make()

    def step():
        raise KeyError("no such batch")

    with pytest.raises(StepError, match=r"KeyError at .*test_forecasting.py:\d+: 'no such batch'"):
        forecast(step, model=model, optimizer=optimizer, device="1GiB")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "nvidia-zx81"}, "neither a size like 24GiB nor a known card"),
        ({"device": "1GiB", "steps": 0}, "steps must be at least 1"),
        ({"device": "1GiB", "batch": 0}, "batch must be at least 1"),
        ({"device": "1GiB", "torch_version": "new"}, "is not a version of torch"),
    ],
)
def test_bad_options_are_refused(options, error):
    """Each names the value and what is valid."""
    model, optimizer, step = make()
    with pytest.raises(ValueError, match=error):
        forecast(step, model=model, optimizer=optimizer, **options)


def test_a_child_that_dies_is_told():
    """A crash of the traced process is an error here, not a hang."""
    with pytest.raises(MemGuardError, match="exit code 7"):
        in_child(lambda: os._exit(7))


def test_libraries_share_a_workspace_where_they_do():
    """In 2.12 cuBLASLt uses what cuBLAS keeps: one workspace for each thread, and no megabyte beside it."""
    model, optimizer, step = make()
    ends = [
        forecast(step, model=model, optimizer=optimizer, device="1GiB", torch_version=v).steady_step.allocated_end_bytes
        for v in ("2.12", "2.15")
    ]
    assert ends[0] - ends[1] == 2 * 8_519_680


@pytest.mark.parametrize("style", ["zero first", "zero last"])
def test_half_the_batch_keeps_gradients_between_its_halves(style):
    """Accumulated twice, the optimizer steps once for two of the user's steps; with SGD its fused form is known too."""
    steps = 0

    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            nonlocal steps
            assert model.weight.grad is not None
            steps += 1
            return super().step(closure)

    model = nn.Linear(64, 64)
    optimizer = Counting(model.parameters(), 0.1, momentum=0.9, fused=True)
    calls = 0

    def step():
        nonlocal calls
        calls += 1
        if style == "zero first":
            optimizer.zero_grad()
        assert (model.weight.grad is None) is (calls % 2 == 1 or not halved)
        model(inputs).sum().backward()
        optimizer.step()
        if style == "zero last":
            optimizer.zero_grad()

    inputs, halved = torch.randn(8, 64), True
    both = accumulated_twice(step, [optimizer])
    for _ in range(3):
        both()
    assert (calls, steps) == (6, 3)
    halved = False
    plain = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, fused=True)
    assert forecast(lambda: (model(inputs).sum().backward(), plain.step()), model=model, optimizer=plain).steps


def test_half_the_batch_is_found_where_the_whole_one_is():
    """The inputs in a step's closure are halved though another function calls the step twice."""
    setting = Setting(steps=1, batch=32, traced_batch=16, change=HALF_BATCH.name)
    found = in_child(lambda: trace(make, setting))
    assert 16 * 256 * 4 in [event.nbytes for event in found.events if event.kind == Kind.ALLOC]


def test_a_recurrent_layer_widens_the_range_and_says_why():
    """On a GPU it would run in cuDNN; what it keeps is not known here."""

    def build(_):
        model = torch.nn.LSTM(32, 64).to("cuda")
        x = torch.zeros(20, 8, 32, device="cuda")
        return model, None, lambda: model(x)[0].sum().backward()

    found = forecast_of(build, device="24GiB")
    assert any("cuDNN" in note for note in found.notes)
    assert any("differ by a third" in source for source in found.range_sources)
    low, high = found.allocated_peak_bytes_range
    assert high - low > 0.02 * found.allocated_peak_bytes


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_recurrent_layer_that_was_built_on_the_host_is_moved(kind):
    """It refers to its weights weakly, which must not keep them from being moved."""

    def build(_):
        model = nn.Sequential(kind(32, 64))
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer, lambda: model(torch.zeros(20, 8, 32))[0].sum().backward()

    found = forecast_of(build, device="24GiB")
    (parameters,) = [share.bytes for share in found.owners if share.name == "parameters"]
    assert parameters >= 4 * sum(weight.numel() for weight in kind(32, 64).parameters())


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_takes_inputs_that_are_on_the_host_for_those_of_the_gpu(inside):
    """Code that names no device, with data from outside the step or made in it by a loader: cast as on a GPU."""

    def build(_):
        model = nn.Conv2d(3, 8, 3)
        images = torch.zeros(4, 3, 16, 16)
        loader = torch.utils.data.DataLoader([torch.zeros(3, 16, 16)] * 4, batch_size=4)

        def step():
            x = next(iter(loader)) if inside else images
            with torch.autocast("cuda", dtype=torch.bfloat16):
                out = model(x)
            assert out.dtype == torch.bfloat16
            out.float().sum().backward()

        return model, None, step

    assert forecast_of(build, device="24GiB", steps=1).fits


@pytest.mark.parametrize(("max_iter", "line_search"), [(1, None), (4, None), (4, "strong_wolfe")])
def test_the_history_of_lbfgs_is_full_from_the_second_step_on(max_iter, line_search):
    """No step of few would fill it; each direction and each step is as large as all parameters."""

    def of(history_size):
        model, _, _ = make()
        inputs = torch.randn(32, 256)
        optimizer = torch.optim.LBFGS(
            model.parameters(), history_size=history_size, max_iter=max_iter, line_search_fn=line_search
        )

        def closure():
            optimizer.zero_grad()
            loss = model(inputs).pow(2).mean()
            loss.backward()
            return loss

        return forecast(lambda: optimizer.step(closure), model=model, optimizer=optimizer, device="1GiB")

    few, more = of(10), of(30)
    assert few.first_step.allocated_peak_bytes == more.first_step.allocated_peak_bytes
    rise = more.allocated_peak_bytes - few.allocated_peak_bytes
    assert 2 * 20 * PARAMETERS <= rise < 2 * 21 * PARAMETERS
    assert {share.name: share.bytes for share in more.owners}["optimizer states"] >= 58 * PARAMETERS
    assert any("LBFGS's history is counted as full" in note and "(history_size=30)" in note for note in more.notes)
