"""What the libraries take is PyTorch's default for the GPU and version, or what the environment says."""

import pytest

from memguard.forecast.kernels.workspaces import Workspaces, expand, workspaces_for
from memguard.forecast.trace import Event, Kind


@pytest.mark.parametrize(
    ("capability", "version", "mebibytes"),
    [((8, 0), "2.15", 8.125), ((9, 0), "2.11", 32), ((10, 0), "2.11", 8.125), ((12, 0), "2.15", 32)],
)
def test_cublas_takes_what_its_gpu_and_version_give_it(capability, version, mebibytes):
    """Hopper has the large workspace in every version, Blackwell since 2.12."""
    assert workspaces_for(capability, version, {}).cublas_bytes == mebibytes * 2**20


def test_the_environment_decides_over_the_defaults():
    """The settings that PyTorch and cuBLAS read are read here too."""
    said = {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8", "CUBLASLT_WORKSPACE_SIZE": "2048"}
    found = workspaces_for((9, 0), "2.15", said)
    assert (found.cublas_bytes, found.cublaslt_bytes) == (4096 * 1024 * 2 + 16 * 1024 * 8, 2048 * 1024)


@pytest.mark.parametrize(("said", "freed"), [({}, 2), ({"TORCH_CUBLAS_WORKSPACE_CACHE": "1"}, 0)])
def test_a_cached_workspace_is_taken_once_and_kept(said, freed):
    """From 2.15 each product takes and frees its own, unless the cache is switched on."""
    products = [Event(Kind.GEMM, 0, 0, 0, 0)] * 2
    events = list(expand(products, "2.15", workspaces_for((8, 0), "2.15", said)))
    assert [event.kind for event in events].count(Kind.FREE) == freed


@pytest.mark.parametrize(("version", "kibibytes"), [("2.11", [32768, 1024]), ("2.12", [32768]), ("2.15", [1024])])
def test_a_product_with_its_bias_takes_what_its_version_shares(version, kibibytes):
    """Until 2.11 cuBLASLt's handle brings cuBLAS's workspace along with its own; as measured on 2.11.0 and 2.12.1."""
    product = [Event(Kind.EPILOGUE_GEMM, 0, 0, 0, 0)]
    events = list(expand(product, version, workspaces_for((9, 0), version, {})))
    assert [event.nbytes >> 10 for event in events if event.kind == Kind.ALLOC] == kibibytes


@pytest.mark.parametrize(("version", "freed"), [("2.6", 2), ("2.7", 0)])
def test_until_2_6_cublaslt_gives_its_own_workspace_back(version, freed):
    """Each product with a bias makes it anew; cuBLAS's stays."""
    products = [Event(Kind.EPILOGUE_GEMM, 0, 0, 0, 0)] * 2
    events = list(expand(products, version, workspaces_for((9, 0), version, {})))
    assert [event.kind for event in events].count(Kind.FREE) == freed


def test_calls_of_cudnn_take_nothing_unless_asked():
    """Their events say the most that they take; a convolution has one more with what it probably takes."""
    call = [Event(Kind.ATTENTION, 0, 1000, 0, 0)]
    assert list(expand(call, "2.15", Workspaces(cublas_bytes=1))) == []
    assert next(expand(call, "2.15", Workspaces(cublas_bytes=1, unknown_share=0.5))).nbytes == 500
    likely = [Event(Kind.WORKSPACE, 0, 1000, 0, 0)]
    assert [event.nbytes for event in expand(likely, "2.15", Workspaces(cublas_bytes=1))] == [1000, 0]
    assert list(expand(likely, "2.15", Workspaces(cublas_bytes=1, unknown_share=0.5))) == []


@pytest.mark.parametrize("other", [False, True])
def test_a_range_can_follow_the_rules_for_other_gpus(other):
    """Each convolution has an event for each of the two rules; one of them counts."""
    calls = [Event(Kind.WORKSPACE, 0, 1000, 0, 0), Event(Kind.OTHER_WORKSPACE, 0, 2000, 0, 0)]
    events = expand(calls, "2.15", Workspaces(cublas_bytes=1, other_rules=other))
    assert [event.nbytes for event in events if event.kind == Kind.ALLOC] == [2000 if other else 1000]
