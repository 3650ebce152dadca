import contextlib
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.loop.inference import (
    LONG,
    MOST_BARE,
    MOST_BEFORE_BACKWARD,
    MOST_EVALUATIONS,
    MOST_OF_PARTS,
    MOST_TOGETHER,
    PLAIN_BATCHES,
    BatchInference,
)
from memguard.records.stats import Stage


class Told:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def enter(self, stage: Stage) -> None:
        self.events.append(stage.value)

    def begin(self, index: int | None) -> None:
        self.events.append("(" if index is None else f"({index}")

    def finish(self) -> None:
        self.events.append(")")

    def crowded(self) -> None:
        self.events.append("?")

    def stepped(self) -> None:
        self.events.append("/")


def infer(events: str, *, may_train: bool = True) -> str:
    """Plays events.

    T and E are forwards of model 1 in training and evaluation, t and e of model 2, p of a part in evaluation, b a
    backward, d one that builds a graph, B one in a program without modules, [ and ] an optimizer step's begin and end;
    n, v and w are forwards of models 1, 3 and 4 in training mode without gradients.
    """
    told = Told()
    loop = BatchInference(told, may_train=lambda: may_train)
    for event in events.replace(" ", ""):
        if event in "TEtep":
            loop.forward(1 if event.isupper() else 2, training=event in "Tt", part=event == "p")
        elif event == "n":
            loop.forward(1, training=False, values=True)
        elif event in "vw":
            loop.forward("vw".index(event) + 3, training=False, values=True)
        elif event in "bd":
            (loop.backward if event == "b" else loop.derivative)()
        else:
            {"B": loop.bare_backward, "[": loop.step_start, "]": loop.step_end}[event]()
    loop.end()
    return " ".join(told.events)


def test_an_ordinary_loop_has_a_batch_a_step() -> None:
    """Forward, backward, step: the step closes the batch."""
    assert infer("Tb[] Tb[]") == "train ( ) ( )"


def test_micro_batches_stay_apart_however_many_steps_came() -> None:
    """Backwards tell them apart, so they are listened to for good."""
    loop = BatchInference(told := Told())
    for _ in range(2 * PLAIN_BATCHES):
        for _ in range(2):
            loop.forward(1, training=True)
            if loop.needs_backward:
                loop.backward()
        loop.step_start()
        loop.step_end()
    assert told.events.count("(") == 4 * PLAIN_BATCHES


def test_accumulation_has_a_batch_a_backward() -> None:
    """Micro-batches are batches; the step closes the last one."""
    assert infer("Tb Tb[] Tb") == "train ( ) ( ) ( )"


def test_several_forwards_before_one_backward_are_one_batch() -> None:
    """Siamese nets and view pairs call the model twice."""
    assert infer("TTb[] TTb[]") == "train ( ) ( )"


def test_a_closure_belongs_to_its_step() -> None:
    """LBFGS runs the model inside the step."""
    assert infer("T [TbTbTb] T [Tb]") == "train ( ) ( )"


def test_a_loop_of_closures_alone_has_a_batch_a_step() -> None:
    """The first forward of a closure opens the batch where none is open; the step closes it."""
    assert infer("[Tb] [TbTb] EE [Tb]") == "train ( ) ( ) validation ( ) ( ) train ( )"


def test_a_network_in_eval_mode_has_a_batch_a_step_too() -> None:
    """An image is trained against it by LBFGS: what its targets were taken from is another batch."""
    assert infer("EE [EbEbEb] [EbEb] E") == "validation ( ) ( ) ( ) ( ) ( )"


def test_a_teacher_inside_a_closure_begins_nothing() -> None:
    """It is asked in each evaluation, before the student and after."""
    assert infer("T b [] [e T b e T b] [e T b]") == "train ( ) ( ) ( )"


def test_of_a_step_that_goes_on_each_evaluation_is_a_batch() -> None:
    """One step of LBFGS may be the whole training; and once one was long, none is waited for."""
    usual = "Tb" * (MOST_EVALUATIONS + 1)
    assert infer(f"[{usual[2:]}] [{usual[2:]}]") == "train ( ) ( )"
    assert infer(f"[{usual}TTb] [TbTb]") == "train ( / ) ( / ) ( ) ( / ) ( )"
    assert infer(f"[{usual.replace('T', 'E')}]") == "validation ( / ) ( )"
    assert infer(f"[{'B' * (MOST_EVALUATIONS + 2)}]") == "train ( / ) ( / ) ( )"


def test_two_optimizers_that_step_one_after_the_other_make_two_batches_at_most() -> None:
    """A step without a forward before it opens nothing."""
    assert infer("Ttb[][] Ttb[][]") == "train ( ) ( )"


def test_steps_without_any_forward_are_batches_after_a_while() -> None:
    """Copies of the model are trained, and it steps with their gradients: nobody else says what a batch is."""
    assert infer("Tb[]" + "[]" * MOST_BARE + "[] [] Tb[] []") == "train ( ) ( ) ( ) ( )"


@pytest.mark.parametrize(("beside", "batches"), [(0, MOST_BARE), (1, 0)])
def test_each_step_of_a_root_that_cannot_be_called_is_a_batch(beside: int, batches: int, tmp_path: Path) -> None:
    """Of a ModuleList the parts are called; a forward of a root beside it is waited for as ever."""
    parts = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 1)])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    roots = [parts, *(nn.Linear(1, 1) for _ in range(beside))]
    with memguard.watch(roots, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for _ in range(MOST_BARE):
            parts[1](parts[0](torch.ones(2, 8))).sum().backward()
            optimizer.step()
        assert [record.stage for record in guard.records] == [Stage.TRAIN] * batches


@pytest.mark.parametrize(("others", "batches"), [(0, 12), (1, 0)])
def test_steps_without_forwards_are_batches_of_who_is_alone(others: int, batches: int, tmp_path: Path) -> None:
    """A Trainer's callback knows what a step belongs to; the session of the script around it leaves it alone."""
    weights = nn.Linear(1, 1)
    for parameter in weights.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
    with contextlib.ExitStack() as stack:
        guards = [
            stack.enter_context(memguard.watch(nn.Linear(1, 1), logdir=tmp_path / str(n), quiet=True, device="cpu"))
            for n in range(1 + others)
        ]
        for _ in range(MOST_BARE + 12):
            optimizer.step()
        assert [guard.session.recorder.batch for guard in guards] == [batches] * len(guards)


def test_evaluation_has_a_batch_a_forward() -> None:
    """Every forward in eval mode is a batch of validation, and training goes on after it."""
    assert infer("Tb[] EE Tb[]") == "train ( ) validation ( ) ( ) train ( )"


def test_what_a_method_asks_its_parts_for_belongs_to_the_batch_of_what_came_first() -> None:
    """A decoder's parts, asked word after word, open no batch of their own; the encoder, called again, does."""
    assert infer("Tb[] Epp Epp pp") == "train ( ) validation ( ) ( )"


def test_models_that_a_step_asks_for_values_one_after_the_other_share_a_batch() -> None:
    """Embedding and head of a policy: until one of them comes again; what is evaluated has its own."""
    assert infer("vw vw v v w") == "validation ( ) ( ) ( ) ( )"
    assert infer("v w w w") == "validation ( ) ( ) ( )"
    assert infer("Ee") == "validation ( ) ( )"


def test_a_target_that_the_trained_model_gives_itself_belongs_to_the_batch() -> None:
    """Without gradients, between a forward and its backward; what comes after that, or in a row, is evaluation."""
    assert infer("Tnb[] TnTnb[] Tnb Tnb[]") == "train ( ) ( ) ( ) ( )"
    assert infer("Tb[] nn Tnb[]") == "train ( ) validation ( ) ( ) train ( )"
    assert infer("Tbn Tb[]") == "train ( ) validation ( ) train ( )"
    assert infer("Tnnn") == "train ( ) validation ( ) ( )"


def test_a_loop_with_such_targets_stays_one_of_a_batch_a_step() -> None:
    """However long it goes on: it never counts as one of one forward and one step."""
    assert infer("Tnb[]" * (PLAIN_BATCHES + 2)) == "train" + " ( )" * (PLAIN_BATCHES + 2)


def test_such_targets_that_begin_late_split_one_batch_at_most() -> None:
    """After many batches of one forward and one step nobody hears of backwards; the first target has that changed."""
    plain = "Tb[]" * (PLAIN_BATCHES + 2)
    events = infer(plain + "Tnb[]" * 5)
    assert events.count("validation") == 1 and events.count("(") == PLAIN_BATCHES + 2 + 5 + 1


def test_a_batch_that_the_loop_says_stays_one_of_training() -> None:
    """However many targets follow its forward; without one it is evaluated, though nobody called eval()."""
    told = Told()
    loop = BatchInference(told)
    loop.explicit = 1
    for index, events in enumerate(["Tnn", "Tn", "nn"]):
        loop.hand_out(index, training=True)
        for event in events:
            loop.forward(1, training=event == "T", values=event == "n")
    loop.end()
    assert " ".join(told.events) == "train (0 ) (1 ) (2 validation )"


def test_candidates_of_a_search_are_no_parts_of_one_batch() -> None:
    """There is a bound on the models that may share one."""
    told = Told()
    loop = BatchInference(told)
    for model in range(2 * MOST_TOGETHER):
        loop.forward(model, training=False, values=True)
    assert told.events.count("(") == 2


def test_a_part_that_is_evaluated_by_itself_has_batches_after_what_came_once() -> None:
    """One call of something else before a long row of a part's forwards does not make one batch of them for ever."""
    assert infer("E" + "p" * (MOST_OF_PARTS + 3)) == "validation ( ) ( ) ( ) ( )"


def test_a_teacher_in_eval_mode_belongs_to_the_training_batch() -> None:
    """Another model's forward in eval mode, while a training batch is open, is part of it."""
    assert infer("Teb[] Teb[]") == "train ( ) ( )"


def test_no_optimizer_at_all_still_has_batches() -> None:
    """Weights updated by hand: a forward after a backward is the next batch."""
    assert infer("Tb Tb Tb") == "train ( ) ( ) ( )"


def test_a_teacher_may_go_first() -> None:
    """Once there is a student, a teacher's forward opens the student's batch."""
    assert infer("Tb[] eTb[] eTb[]") == "train ( ) ( ) ( )"


def test_an_average_that_is_evaluated_is_no_teacher() -> None:
    """Called again before any student: from there on it is evaluation."""
    assert infer("Tb[] eee Tb[]") == "train ( ) ( ) validation ( ) ( ) train ( )"


def test_a_loop_of_plain_steps_needs_no_backwards_until_it_changes() -> None:
    """After 64 batches of one forward and one step, backwards go unheard; another forward asks for them again."""
    told = Told()
    loop = BatchInference(told)
    asked = []
    for _ in range(70):
        loop.forward(1, training=True)
        asked.append(loop.needs_backward)
        loop.step_start()
        loop.step_end()
    assert asked == [True] * 64 + [False] * 6
    loop.forward(1, training=True)
    loop.forward(1, training=True)
    assert loop.needs_backward
    loop.backward()
    loop.forward(1, training=True)
    loop.end()
    assert told.events[-4:] == ["(", ")", "(", ")"]


def test_several_forwards_without_a_backward_are_worth_a_look() -> None:
    """It is said once in each batch."""
    assert infer("TTTTTT b[] TTT b[]") == "train ( ? ) ( )"


def test_where_nothing_is_trained_each_forward_is_a_batch_after_many() -> None:
    """A model in training mode is called and called; a backward or a step, once, and they are waited for again."""
    many = "T" * (MOST_BEFORE_BACKWARD + 1)
    assert infer(many) == "train ( ? )"
    assert infer(many + "TTT") == "train ( ? ) ( ) ( ) ( )"
    assert infer(many + "TTTb[] TTTb[]") == "train ( ? ) ( ) ( ) ( ) ( )"
    assert infer("Tb[]" + many + "TTT") == "train ( ) ( ? )"


def test_after_training_a_long_row_of_forwards_is_a_roll_out_where_no_backward_can_come() -> None:
    """More than twice the forwards that any batch had before its backward; the source is asked once."""
    long = "T" * (LONG + 1)
    assert infer("TTb[]" + long + "TT", may_train=False) == "train ( ) ( ? ) ( ) ( )"
    assert infer("TTb[]" + long + "TTb[] TTb[]", may_train=False) == "train ( ) ( ? ) ( ) ( ) ( )"
    assert infer(long + "b[]" + long + "TTb[]") == "train ( ? ) ( ? )"
    assert infer("Tb[]" + "T" * 60 + "b[]" + "T" * 100 + "b[]", may_train=False).endswith("( ? )")


def test_what_is_differentiated_with_a_graph_is_a_part_of_its_batch() -> None:
    """A penalty, the terms of a physics-informed net, inner steps of MAML; once an ordinary backward was seen."""
    assert infer("Tb[] TdTb[] TdTdTdTb TdTTb[]") == "train ( ) ( ) ( ) ( )"
    assert infer("TdTb[] TdTb[]") == "train ( ) ( ) ( )"


def test_gradients_with_a_graph_alone_have_batches_too() -> None:
    """Weights updated by hand from such gradients; an evaluation that takes them, after training."""
    assert infer("Td Td Td") == "train ( ) ( ) ( )"
    assert infer("Tb[]" + "Td" * 130).count("(") == 3


def test_without_modules_a_backward_is_a_batch() -> None:
    """With an optimizer, without one, and in the closure of LBFGS."""
    assert infer("B[] B[]") == "train ( ) ( )"
    assert infer("B B") == "train ( ) ( )"
    assert infer("[BBB] [BB]") == "train ( ) ( )"
