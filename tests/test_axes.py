from collections.abc import Iterator

import pytest

import memguard
from memguard.axes import declared, in_environment, places_in


@pytest.fixture(autouse=True)
def nothing_declared() -> Iterator[None]:
    yield
    memguard.coordinates(**dict.fromkeys(declared()))


def test_what_is_declared_adds_up_and_can_be_taken_back() -> None:
    """Each call adds axes; None forgets one."""
    assert memguard.coordinates(pp=3) == {"pp": 3}
    assert memguard.coordinates(tp=0, pp=2) == {"pp": 2, "tp": 0}
    assert memguard.coordinates(pp=None) == {"tp": 0} == memguard.coordinates()


@pytest.mark.parametrize(
    ("axes", "error", "words"),
    [
        ({"pipeline": 1}, TypeError, "dp, fsdp, tp, pp, cp, ep"),
        ({"fspd": 1}, TypeError, "did you mean 'fsdp'"),
        ({"pp": "3"}, TypeError, "pp='3'"),
        ({"pp": True}, TypeError, "pp=True"),
        ({"pp": -1}, ValueError, "pp=-1"),
    ],
)
def test_a_wrong_place_is_answered_with_the_value(axes: dict[str, int], error: type[Exception], words: str) -> None:
    """And declares nothing."""
    with pytest.raises(error, match=words):
        memguard.coordinates(dp=1, **axes)
    assert declared() == {}


def test_megatrons_sizes_give_the_place_in_its_order_of_ranks() -> None:
    """Of all axes tp changes fastest, then cp, dp, and pp slowest; experts are spread over the ranks of a stage."""
    told = {
        "TENSOR_MODEL_PARALLEL_SIZE": "2",
        "PIPELINE_MODEL_PARALLEL_SIZE": "4",
        "EXPERT_MODEL_PARALLEL_SIZE": "4",
        "CONTEXT_PARALLEL_SIZE": "1",
    }
    places = [in_environment(told, rank, 32) for rank in range(32)]
    assert places[0] == {"tp": 0, "pp": 0, "dp": 0, "ep": 0}
    assert places[13] == {"tp": 1, "pp": 1, "dp": 2, "ep": 2}
    assert places[31] == {"tp": 1, "pp": 3, "dp": 3, "ep": 3}
    assert len({tuple(sorted(place.items())) for place in places}) == 32


def test_an_environment_that_does_not_fit_the_world_tells_nothing() -> None:
    """Sizes that do not divide the ranks, or are all 1, are no place."""
    assert in_environment({"TP_SIZE": "3", "PP_SIZE": "2"}, 1, 8) == {}
    assert in_environment({"TP_SIZE": "1", "PP_SIZE": "1"}, 1, 8) == {}
    assert in_environment({}, 1, 8) == {}


def test_a_rank_on_an_axis_is_taken_as_it_is() -> None:
    """A launcher that sets the place itself is believed."""
    assert in_environment({"PIPELINE_MODEL_PARALLEL_RANK": "2", "DP_RANK": "x"}, 5, 8) == {"pp": 2}


def test_a_strangers_recording_gives_known_axes_only() -> None:
    """Whatever stands there: positions on the six axes."""
    assert places_in({"pp": 1, "tp": "0", "zz": 3, "dp": True, "ep": -1}) == {"pp": 1}
    assert places_in([1, 2]) == {}
