"""From scenes made by hand to causes and advice: what no small program can show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.postmortem import Cause, PostMortem, Scene, conclude
from memguard.postmortem.scene import KeptTensors, Objects, OptimizerUse, Replayed, Request
from memguard.records.facts import Place
from memguard.records.stats import BatchRecord, Stage
from memguard.report.postmortem_text import render_markdown, render_short

GIB = 1 << 30
FULL = Request(
    requested_bytes=2 * GIB,
    limit_bytes=24 * GIB,
    free_bytes=GIB,
    allocated_bytes=22 * GIB,
    reserved_bytes=23 * GIB,
    pieces_bytes=GIB // 2,
    largest_piece_bytes=GIB // 8,
)
BUSY = Objects(owners={"parameters": 2 * GIB, "activations": 20 * GIB}, phase="backward", layers=16)
SCENE = Scene(device="cuda:0", stage=Stage.TRAIN, batch=7, request=FULL, objects=BUSY)
BROKEN = replace(FULL, allocated_bytes=14 * GIB, pieces_bytes=9 * GIB)


def advice(told: PostMortem) -> str:
    return " ".join(each.text for each in told.advice)


def test_other_process() -> None:
    """Another process that holds most of the device is named by its pid, with what ending it gives."""
    request = replace(FULL, allocated_bytes=4 * GIB, reserved_bytes=5 * GIB, others=((4242, 18 * GIB),))
    told = conclude(replace(SCENE, request=replace(request, others_bytes=18 * GIB)))
    assert told.verdict.cause is Cause.OTHER_PROCESS
    assert "pid 4242 with 18.0 GiB" in told.verdict.text
    assert told.advice[0].gain_bytes == 18 * GIB


@pytest.mark.parametrize(("largest", "advised"), [(3 * GIB, True), (GIB // 4, False)])
def test_what_private_pools_keep_free_is_the_cause_where_it_would_have_been_enough(largest: int, advised: bool) -> None:
    """The allocator may take whole pieces of a pool, none larger: else it must be let go of."""
    request = replace(FULL, private_free_bytes=6 * GIB, largest_private_bytes=largest)
    told = conclude(replace(SCENE, request=request))
    assert told.verdict.cause is Cause.PRIVATE_POOLS and told.advice[0].gain_bytes == 6 * GIB
    assert "6.00 GiB are free in pools of their own" in told.verdict.text
    assert ("use_on_oom" in advice(told)) is advised
    little = replace(FULL, private_free_bytes=GIB // 4, largest_private_bytes=GIB // 4)
    assert conclude(replace(SCENE, request=little)).verdict.cause is not Cause.PRIVATE_POOLS


def test_a_small_neighbour_is_not_the_cause() -> None:
    """Another process with a little memory is not blamed for a batch that is far too large."""
    request = replace(FULL, others=((4242, 2 * GIB),), others_bytes=2 * GIB)
    assert conclude(replace(SCENE, request=request)).verdict.cause is Cause.SIZE


def test_a_large_neighbour_is_not_the_cause_where_a_share_of_the_device_is_used_up() -> None:
    """With `set_per_process_memory_fraction` the process may take no more, whoever else ends."""
    request = replace(FULL, others=((4242, 50 * GIB),), others_bytes=50 * GIB)
    assert conclude(replace(SCENE, request=request)).verdict.cause is Cause.SIZE


@pytest.mark.parametrize(
    ("scene", "advised"),
    [
        ({"expandable": False, "expandable_supported": True}, True),
        ({"expandable": True, "expandable_supported": True}, False),
        ({"expandable": None, "expandable_supported": True}, False),
        ({"expandable": False, "expandable_supported": False}, False),
    ],
)
@pytest.mark.parametrize("fits", [True, False])
def test_expandable_segments(scene: dict[str, bool], advised: bool, fits: bool) -> None:
    """They are advised where they are off, supported, and a replay shows that they help; the text says so."""
    replayed = Replayed(conf="expandable_segments:True", fits=fits, reserved_peak_bytes=21 * GIB, events=1000)
    told = conclude(replace(SCENE, request=BROKEN, replays=(replayed,), traced=True, **scene))  # type: ignore[arg-type]
    assert told.verdict.cause is Cause.FRAGMENTATION
    assert ("expandable_segments" in advice(told)) is (advised and fits)
    if advised and fits:
        assert "replayed with it" in advice(told)
        assert "21.0 GiB" in advice(told)
        assert told.advice[0].gain_bytes == (23 + 2 - 21) * GIB


@pytest.mark.parametrize(("lengths", "says"), [((256, 512), True), ((1024, 1024), False)])
def test_padding_is_advised_only_where_shapes_vary(lengths: tuple[int, int], says: bool) -> None:
    """It may help then; how much, no number of the run says."""
    records = tuple(
        BatchRecord(batch=n, stage=Stage.TRAIN, time=0.0, seconds=0.1, shapes=n, allocated_peak_bytes=16 * GIB)
        for n in range(2)
    )
    tables = {n: [["0", [8, length], "float32"]] for n, length in enumerate(lengths)}
    scene = replace(SCENE, request=BROKEN, records=records, shapes_of=tables, shapes=[["0", [8, 1024], "float32"]])
    told = conclude(scene)
    assert told.verdict.cause is Cause.FRAGMENTATION
    assert [each.gain_bytes for each in told.advice if "pad inputs" in each.text] == ([None] if says else [])


@pytest.mark.parametrize(("largest", "says"), [(4 * GIB, True), (GIB, False)])
def test_a_piece_that_is_large_enough_and_was_not_used_is_explained(largest: int, says: bool) -> None:
    """It lies where the request may not go."""
    told = conclude(replace(SCENE, request=replace(BROKEN, largest_piece_bytes=largest)))
    assert told.verdict.cause is Cause.FRAGMENTATION
    assert ("of a segment for requests of another size or stream" in told.verdict.text) is says


@pytest.mark.parametrize(
    ("requested", "says"),
    [(2, "In one place they would"), (10, "In one place, with the 1.00 GiB that the device has left, they would")],
)
def test_what_the_device_had_left_is_told_where_the_pieces_alone_were_not_enough(requested: int, says: str) -> None:
    """What would have been enough is named in full."""
    told = conclude(replace(SCENE, request=replace(BROKEN, requested_bytes=requested * GIB)))
    assert says in told.verdict.text


def test_a_batch_that_is_too_large_is_not_fragmentation() -> None:
    """Free pieces do not matter where the batch would not have fitted anyway."""
    scene = replace(SCENE, request=BROKEN, shapes=[["0", [512, 1024], "float32"]])
    scene = replace(scene, objects=replace(BUSY, phase="forward", forward_share=0.3))
    assert conclude(scene).verdict.cause is Cause.SIZE


@pytest.mark.parametrize(("phase", "cause"), [("forward", Cause.LONG_BATCH), ("backward", Cause.FRAGMENTATION)])
def test_a_long_batch_is_not_fragmentation(phase: str, cause: Cause) -> None:
    """A replay shows that the failing request fits; the rest of a forward that is longer than all before does not."""
    records = tuple(
        BatchRecord(
            batch, Stage.TRAIN, 1.0, 1.0, optimizer_steps=batch, shapes=0, allocated_start_bytes=2 * GIB,
            allocated_peak_bytes=(6 + batch % 2) * GIB, allocated_end_bytes=2 * GIB,
        )
        for batch in range(6)
    )  # fmt: skip
    replayed = Replayed(conf="expandable_segments:True", fits=True, reserved_peak_bytes=17 * GIB, events=1000)
    told = conclude(
        replace(
            SCENE,
            request=BROKEN,
            records=records,
            shapes_of={0: [["0", [8, 256], "float32"]]},
            shapes=[["0", [8, 1024], "float32"]],
            objects=replace(BUSY, phase=phase, forward_share=0.5),
            replays=(replayed,),
        )
    )
    assert told.verdict.cause is cause


def test_fused_comes_first_where_it_is_enough() -> None:
    """A step that fails for its temporary copies needs fused=True, not another optimizer."""
    use = OptimizerUse(
        name="AdamW", steps=0, stepping=True, state_bytes=10 * GIB, full_state_bytes=10 * GIB, temporary_bytes=5 * GIB
    )
    told = conclude(replace(SCENE, objects=replace(BUSY, phase="optimizer step", optimizers=(use,))))
    assert told.verdict.cause is Cause.OPTIMIZER_STATE
    assert "fused=True" in told.advice[0].text
    assert told.advice[0].gain_bytes == 5 * GIB


@pytest.mark.parametrize(("full", "cause"), [(19, Cause.OPTIMIZER_STATE), (12, Cause.FRAGMENTATION)])
def test_state_that_fills_the_device_is_not_fragmentation(full: int, cause: Cause) -> None:
    """In the first step what is free lies in pieces; they are the cause only where they would have been left."""
    use = OptimizerUse(
        name="RAdam",
        steps=0,
        stepping=True,
        state_bytes=9 * GIB,
        full_state_bytes=full * GIB,
        temporary_bytes=0,
    )
    told = conclude(replace(SCENE, request=BROKEN, objects=replace(BUSY, phase="optimizer step", optimizers=(use,))))
    assert told.verdict.cause is cause


def test_the_cache_is_never_blamed() -> None:
    """No cause advises to empty a cache that the allocator has emptied itself."""
    for request in (FULL, BROKEN):
        assert "empty" not in advice(conclude(replace(SCENE, request=request)))


def test_a_floor_that_stands_still_is_no_leak() -> None:
    """What the first steps allocate, and what is freed again, is not growth."""
    floors = [2, 6, 6, 7, 6, 7, 6, 6]
    records = tuple(
        BatchRecord(batch=n, stage=Stage.TRAIN, time=0.0, seconds=0.1, allocated_end_bytes=floor * GIB)
        for n, floor in enumerate(floors)
    )
    assert conclude(replace(SCENE, records=records)).verdict.cause is Cause.SIZE


def young(batches: int, **hoard: object) -> PostMortem:
    """What is told of a run that failed after so few batches, with a list that holds their outputs."""
    records = tuple(
        BatchRecord(batch=n, stage=Stage.TRAIN, time=0.0, seconds=0.1, allocated_end_bytes=(n + 1) * 4 * GIB)
        for n in range(batches)
    )
    kept = {"tensors": batches + 1, "bytes": batches * 4 * GIB, "graph": False, "attached": True, **hoard}
    objects = replace(
        BUSY,
        owners={"activations": 8 * GIB, "outputs": 12 * GIB},
        hoards=(KeptTensors(place=Place(holder="acts"), **kept),),  # type: ignore[arg-type]
    )
    return conclude(replace(SCENE, records=records, objects=objects))


def test_three_batches_are_enough_where_a_list_holds_what_each_of_them_left() -> None:
    """The list is named, and what it holds is not called detached; its tensors go to the CPU without their graphs."""
    told = young(3)
    assert told.verdict.cause is Cause.LEAK
    assert told.verdict.text.endswith("`acts` holds 4 tensors (12.0 GiB), on the device, and not detached.")
    assert "tensor.detach().cpu()" in told.advice[0].text
    assert "detached, but on the device" in young(3, attached=False).verdict.text


@pytest.mark.parametrize("other", [{"tensors": 2}, {"bytes": 4 * GIB}, {"most": 4}])
def test_three_batches_prove_nothing_with_a_list_that_does_not_explain_them(other: dict[str, int]) -> None:
    """Fewer tensors than batches, or of too few bytes, or a list that grows no more."""
    assert young(3, **other).verdict.cause is Cause.SIZE


def test_two_batches_are_too_few_to_tell() -> None:
    """What is kept is told, and that it is open whether it piles up."""
    told = young(2)
    assert told.verdict.cause is Cause.SIZE
    assert "something keeps 12.0 GiB; there were too few batches to see whether it grows" in told.verdict.text


@pytest.mark.parametrize(
    ("batch", "says"), [(4096, "over 3 batches of at most 1366."), (4095, "over 3 batches of 1365.")]
)
def test_the_batches_to_accumulate_over_make_up_the_one_that_failed(batch: int, says: str) -> None:
    """Not as many of the largest that fits: together they would be half as much again."""
    shapes = [["0", [batch, 64], "float32"]]
    request = replace(FULL, free_bytes=0, pieces_bytes=0, requested_bytes=20 * GIB)
    told = conclude(replace(SCENE, request=request, shapes=shapes))
    assert 1366 < (told.advice[0].value or 0) < 2048
    assert says in told.advice[0].text


def test_little_is_known() -> None:
    """With nothing but the message there is a report all the same."""
    told = conclude(Scene(device="mps", message="MPS backend out of memory"))
    assert told.verdict.cause is Cause.SIZE
    assert "MPS backend out of memory" in render_markdown(told)
    assert "memguard: out of memory on mps" in render_short(told)


def test_the_text() -> None:
    """The short text has cause, owners and numbered advice; the whole one has PyTorch's text besides."""
    scene = replace(SCENE, message="CUDA out of memory.", shapes=[["0", [512, 1024], "float32"]])
    told = conclude(scene)
    short = render_short(told, "report.md")
    assert "2.00 GiB asked for" in short
    assert "activations and saved tensors 20.0 GiB" in short
    assert "  1. Make the batch" in short
    assert short.endswith("The whole report: report.md")
    assert "CUDA out of memory." in render_markdown(told)


def test_one_tensor_larger_than_the_device() -> None:
    """A request that no device of this size could serve is told as such."""
    told = conclude(replace(SCENE, request=replace(FULL, requested_bytes=100 * GIB)))
    assert "larger than the device" in told.verdict.text
    assert "shape" in told.advice[0].text


def test_a_segment_larger_than_the_device_is_not_called_a_tensor() -> None:
    """The driver is asked for 2 MiB for the smallest tensor; no shape is to blame."""
    told = conclude(replace(SCENE, request=Request(requested_bytes=2 << 20, limit_bytes=1 << 20, allocated_bytes=0)))
    assert (
        "a segment of 2.00 MiB, which PyTorch takes for smaller tensors too, is larger than the device"
        in told.verdict.text
    )
    assert advice(told) == "take a device of 2.00 MiB at the very least."


def pile(floors: tuple[int, ...] = (2, 2), **hoard: object) -> PostMortem:
    """What is told where the pieces would have been enough, and a list holds most of what is allocated."""
    records = tuple(
        BatchRecord(batch=n, stage=Stage.TRAIN, time=0.0, seconds=0.1, allocated_end_bytes=floor * GIB)
        for n, floor in enumerate(floors)
    )
    kept = {"tensors": 24, "bytes": 18 * GIB, "graph": False, **hoard}
    objects = Objects(
        owners={"parameters": GIB, "outputs": 18 * GIB},
        hoards=(KeptTensors(place=Place(holder="feats"), **kept),),  # type: ignore[arg-type]
    )
    request = replace(FULL, allocated_bytes=19 * GIB, pieces_bytes=3 * GIB)
    return conclude(replace(SCENE, request=request, records=records, objects=objects))


@pytest.mark.parametrize(
    ("floors", "hoard"), [((2, 2), {}), ((), {"filling": True}), ((19, 2, 10), {}), ((2, 2), {"attached": True})]
)
def test_a_list_that_filled_the_device_is_the_cause_in_whatever_pieces_the_rest_lies(
    floors: tuple[int, ...], hoard: dict[str, object]
) -> None:
    """It holds more than was allocated after a batch, or the program stands in the loop that fills it."""
    told = pile(floors, **hoard)
    assert told.verdict.cause is Cause.LEAK
    assert "`feats` holds 24 tensors (18.0 GiB)" in told.verdict.text
    assert told.verdict.text.endswith("That is 95% of what is allocated.")
    assert "do not let `feats` keep tensors" in told.advice[0].text


@pytest.mark.parametrize(
    ("floors", "hoard"),
    [((), {}), ((19, 19), {}), ((2, 2), {"tensors": 2}), ((2, 2), {"bytes": 8 * GIB}), ((2, 2), {"most": 25})],
)
def test_a_list_that_did_not_fill_the_device_leaves_the_pieces_the_cause(
    floors: tuple[int, ...], hoard: dict[str, object]
) -> None:
    """It may have been there from the beginning, is a small part, or grows no more."""
    assert pile(floors, **hoard).verdict.cause is Cause.FRAGMENTATION
