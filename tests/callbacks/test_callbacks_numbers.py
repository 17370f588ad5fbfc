"""What callbacks log of rollouts made by hand."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_run import TinyModule, response, rollout_of, trainer_of

from r1lit.callbacks import (
    GroupHealth,
    MajorityVoteEvaluation,
    ReflectionWords,
    ResponseLength,
    ResponseTable,
)

THOUGHT = "<think>12345</think>67890"  # 5 of 25 characters are thinking


class Scripted(TinyModule):
    """Answers training iteration i, and evaluations, with rollouts from a script."""

    def __init__(self, train: list, val: list) -> None:
        super().__init__(num_train=len(train), num_val=len(val))
        self.train_script, self.val_script = train, val

    def answer(self, stage, index, num_prompts):
        return (self.train_script if stage == "train" else self.val_script)[index]


def logged(tmp_path, callback, train, val=()) -> dict[tuple[int, str], float]:
    """The values by step and key of a run evaluated once, at its end."""
    trainer = trainer_of(tmp_path, [callback], val_check_interval=len(train))
    trainer.fit(Scripted(list(train), list(val) or [train[0]]))
    return trainer.logger.by_step()


def at(values, step, stage) -> dict[str, float]:
    return {
        key.removeprefix(stage + "/"): value
        for (s, key), value in values.items()
        if s == step and key.startswith(stage + "/")
    }


def test_response_length(tmp_path):
    mixed = rollout_of(
        [
            response(THOUGHT, True, num_tokens=10),
            response("no tags", False, num_tokens=20, finished=False),
            response(THOUGHT, False, num_tokens=40),
            response("", False, num_tokens=30),
        ],
        group_size=2,
    )
    all_wrong = rollout_of([response("x", False, num_tokens=7)] * 2, group_size=2)
    values = logged(tmp_path, ResponseLength(), [mixed, all_wrong], [mixed, all_wrong])

    first = at(values, 0, "train")
    assert first["length/mean"] == 25
    assert (first["length/right"], first["length/wrong"]) == (10, 30)
    assert first["length/max"] == 40
    assert first["length/p90"] == pytest.approx(37)  # 30 + 0.7 * 10
    assert first["length/truncated"] == 0.25
    assert first["length/thinking_share"] == pytest.approx((0.2 + 0 + 0.2 + 0) / 4)

    second = at(values, 1, "train")
    assert math.isnan(second["length/right"])  # and not the 10 of the iteration before
    assert second["length/wrong"] == 7

    evaluation = at(values, 1, "val")  # over all six responses, not the mean of two batches
    assert evaluation["length/mean"] == pytest.approx((10 + 20 + 40 + 30 + 7 + 7) / 6)


def test_group_health_by_source(tmp_path):
    def group(*right: bool, source: str):
        return [response("x", r, source=source) for r in right]

    both = rollout_of(
        group(True, False, source="a")
        + group(True, True, source="a")
        + group(False, False, source="b")
        + group(False, True, source="b"),
        group_size=2,
    )
    only_a = rollout_of(group(False, False, source="a"), group_size=2)
    values = logged(tmp_path, GroupHealth(), [both, only_a])
    first, second = at(values, 0, "train"), at(values, 1, "train")
    names = ("groups/mixed", "groups/all_right", "groups/all_wrong")
    assert [first[n] for n in names] == [0.5, 0.25, 0.25]
    assert [first[n + "/a"] for n in names] == [0.5, 0.5, 0]
    assert [first[n + "/b"] for n in names] == [0.5, 0, 0.5]
    assert [second[n + "/a"] for n in names] == [0, 0, 1]
    assert all(math.isnan(second[n + "/b"]) for n in names)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("same same", "sampling.temperature: 1.0"),
        ("cut", "raise model.sampling.max_tokens"),
        ("wrong wrong", "all responses are wrong; give data.train"),
        ("right right", "all responses are right; give data.train harder"),
        ("right wrong", "either always or never solved"),
    ],
)
def test_groups_without_unlike_rewards_are_warned_of_once_with_their_cause(
    tmp_path, groups, words, recwarn
):
    rollout = rollout_of(
        [
            response(
                "x" if kind == "same" else name, kind in ("right", "same"), finished=kind != "cut"
            )
            for kind in groups.split()
            for name in "ab"
        ],
        group_size=2,
    )
    logged(tmp_path, GroupHealth(), [rollout] * 7)
    (said,) = [str(w.message) for w in recwarn if "so nothing is learned" in str(w.message)]
    assert words in said


def test_majority_vote_by_source(tmp_path):
    def group(keys: str, source: str):
        return [response("x", k.isupper(), source=source, canonical=k) for k in keys]

    first = rollout_of(group("AAb", "a") + group("bbA", "b"), group_size=3)
    second = rollout_of(group("bcd", "a"), group_size=3)
    values = at(logged(tmp_path, MajorityVoteEvaluation(), [first], [first, second]), 0, "val")
    assert values["pass_at_1"] == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    assert values["pass_at_1/a"] == pytest.approx(1 / 3)
    assert values["pass_at_1/b"] == pytest.approx(1 / 3)
    assert values["cons_at_3"] == pytest.approx(1 / 3)
    assert values["pass_at_3"] == pytest.approx(2 / 3)
    assert (values["num_problems"], values["num_samples"]) == (3, 3)


def test_majority_vote_by_kind(tmp_path):
    """Requests are apart from reasoning, and a problem that names no kind is in neither."""

    def pair(first: bool, second: bool, kind: str | None):
        return [response("x", right, kind=kind) for right in (first, second)]

    both = pair(True, False, "reasoning") + pair(True, True, "general") + pair(False, False, None)
    rollout = rollout_of(both, group_size=2)
    values = at(logged(tmp_path, MajorityVoteEvaluation(), [rollout], [rollout]), 0, "val")
    of_kind = {k: v for k, v in values.items() if k.startswith("pass_at_1_of_kind/")}
    assert of_kind == {"pass_at_1_of_kind/general": 1.0, "pass_at_1_of_kind/reasoning": 0.5}
    assert values["pass_at_1"] == 0.5


def saying(*texts: str):
    return rollout_of([response(t, True, num_tokens=250) for t in texts], group_size=len(texts))


def test_reflection_rates(tmp_path):
    values = at(
        logged(tmp_path, ReflectionWords(), [saying("Wait, wait. But", "check")]), 0, "train"
    )
    assert values["reflection/per_response"] == 2
    assert values["reflection/per_1000_tokens"] == 8
    assert values["reflection/word/wait"] == 1
    assert values["reflection/word/check"] == 0.5
    assert values["reflection/word/retry"] == 0


def with_iterations(rollouts):
    return [rollout_of(list(r.responses), r.group_size, i) for i, r in enumerate(rollouts)]


def test_onset_is_the_first_windowed_doubling(tmp_path):
    # "wait" per response: .5 .5 | 1 .5 1 2 -> means of two: base .5, .75, .75, .75, 1.5 (i = 5)
    # "but": absent, then 0.5 at i = 2 -> mean .25 >= min_rate .25 at once
    one, half = saying("wait", "wait"), saying("wait", "x")
    script = [half, half, saying("wait but", "wait"), half, one, saying("wait wait", "wait wait")]
    words = ReflectionWords(growth=2.0, min_rate=0.25, window=2)
    values = logged(tmp_path, words, with_iterations(script))
    assert words.state_dict()["onset"] == {"but": 2, "wait": 5}
    assert [step for step, key in values if key == "train/reflection/onset/wait"] == [5]
    assert values[3, "train/reflection/onset/but"] == 2

    other = ReflectionWords(growth=2.0, min_rate=0.25, window=2)
    other.load_state_dict(words.state_dict())
    assert other.state_dict() == words.state_dict()


def test_an_onset_needs_the_minimal_rate(tmp_path):
    script = with_iterations([saying("x", "x"), saying("wait", "x"), saying("wait", "x")])
    words = ReflectionWords(growth=2.0, min_rate=0.6, window=1)
    logged(tmp_path, words, script)
    assert words.state_dict()["onset"] == {}


@pytest.mark.parametrize("wrong", [{"window": 0}, {"growth": 0.0}, {"min_rate": -1.0}])
def test_onset_arguments_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ReflectionWords(**wrong)


def test_nothing_is_logged_without_a_rollout(tmp_path):
    class Supervised(TinyModule):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            return {"loss": torch.tensor(1.0)}

        def validation_step(self, batch, batch_idx):
            self.log("val/loss", 2.0, batch_size=1)

    callbacks = [
        ResponseLength(),
        GroupHealth(),
        ReflectionWords(),
        MajorityVoteEvaluation(),
        ResponseTable(str(tmp_path)),
    ]
    trainer = trainer_of(tmp_path, callbacks)
    trainer.fit(Supervised())
    seen = {key for _, key in trainer.logger.by_step()}
    assert seen == {
        "train/loss",
        "train/kl_reference",
        "train/reward/accuracy",
        "train/reward/format",
        "val/loss",
    }
    assert not (tmp_path / "responses.jsonl").exists()


@pytest.mark.long
def test_two_ranks_log_the_numbers_of_all_responses(tmp_path):
    class Uneven(TinyModule):
        """Rank 0 answers two problems with short right responses, rank 1 one with long wrong."""

        def answer(self, stage, index, num_prompts):
            if self.global_rank == 0:
                right = [response("wait", True, num_tokens=10, source="a")] * 4
                return rollout_of(right, group_size=2, iteration=int(self.iteration))
            wrong = [response("x", False, num_tokens=40, source="b")] * 2
            return rollout_of(wrong, group_size=2, iteration=int(self.iteration))

    callbacks = [ResponseLength(), GroupHealth(), MajorityVoteEvaluation(), ReflectionWords()]
    trainer = trainer_of(
        tmp_path,
        callbacks,
        strategy="ddp_fork",
        devices=2,
        use_distributed_sampler=False,
        val_check_interval=1,
    )
    trainer.fit(Uneven(num_train=1, num_val=1))
    values = trainer.logger.by_step()
    for stage in ("train", "val"):
        assert values[0, f"{stage}/length/mean"] == 20
        assert values[0, f"{stage}/length/right"] == 10
        assert values[0, f"{stage}/length/wrong"] == 40
        assert values[0, f"{stage}/groups/all_right"] == pytest.approx(2 / 3)
        assert values[0, f"{stage}/reflection/word/wait"] == pytest.approx(2 / 3)
    assert values[0, "val/pass_at_1"] == values[0, "val/cons_at_2"] == pytest.approx(2 / 3)
    assert values[0, "val/pass_at_1/b"] == 0
