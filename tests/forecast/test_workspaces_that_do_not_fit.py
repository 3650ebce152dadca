"""A convolution's workspace that does not fit is no out-of-memory: PyTorch takes the next plan of cuDNN's list."""

from memguard.forecast.kernels.workspaces import Workspaces
from memguard.forecast.simulate import simulate
from memguard.forecast.trace import Event, Kind, Trace

MIB = 2**20
WORKSPACES = Workspaces(cublas_bytes=8 * MIB)


def traced(*events):
    steps = [Event(Kind.STEP, 0, 0, 0, 0), *events, Event(Kind.STEP, 0, 1, 0, 0)]
    return Trace(
        events=steps,
        sites=[],
        owners=["activations"] * len(events),
        steps=1,
        compute_capability=(8, 6),
        torch_version="2.13",
        operators=1,
    )


def run(*events, total=1024 * MIB):
    return simulate(traced(*events), total_bytes=total, torch_version="2.13", workspaces=WORKSPACES)


HELD = Event(Kind.ALLOC, 0, 600 * MIB, 0, 0)


def test_the_step_goes_on_without_it():
    """The allocator has flushed its cache by then, so it counts as a retry; the workspace is in no figure."""
    found = run(HELD, Event(Kind.WORKSPACE, 0, 500 * MIB, 0, 0), Event(Kind.ALLOC, 1, 300 * MIB, 0, 0))
    assert found.out_of_memory is None
    assert found.refused_bytes == (500 * MIB,)
    assert found.num_alloc_retries == 1
    assert found.allocated_peak_bytes == found.curve()[-1][1] == 900 * MIB


def test_one_that_fits_is_taken_and_given_back():
    """As any allocation."""
    found = run(HELD, Event(Kind.WORKSPACE, 0, 400 * MIB, 0, 0))
    assert found.refused_bytes == () and found.allocated_peak_bytes == 1000 * MIB


def test_a_tensor_or_another_library_s_workspace_that_does_not_fit_is_out_of_memory():
    """Only convolutions have a list of plans."""
    assert run(HELD, Event(Kind.ALLOC, 1, 500 * MIB, 0, 0)).out_of_memory
    assert run(HELD, Event(Kind.GEMM, 0, 0, 0, 0), total=601 * MIB).out_of_memory
