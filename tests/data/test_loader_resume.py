"""A resumed run sees exactly the batches that the uninterrupted one would have seen next."""

from __future__ import annotations

import pytest
import torch
from trainer_doubles import ListDocuments, Recorder, SaveEverywhere, make_trainer, numbered

from r1lit.data import (
    Document,
    EvaluationOptions,
    LateProblems,
    PackingOptions,
    R1DataModule,
    RolloutOptions,
)


def problem_data(**options):
    return R1DataModule(
        train=[numbered(11)],
        validation=[numbered(3, "v", "held out")],
        rollout=RolloutOptions(prompts_per_iteration=3, num_reserve_prompts=1),
        evaluation=EvaluationOptions(prompts_per_batch=2),
        **options,
    )


def late_data(**options):
    return R1DataModule(
        train=[LateProblems(numbered(5, "l", "late"), from_iteration=6), numbered(7)],
        rollout=RolloutOptions(prompts_per_iteration=3),
        **options,
    )


def document_data(**options):
    words = [Document(prompt="p" * (i % 3), response="r" * (1 + i)) for i in range(12)]
    return R1DataModule(
        documents=[ListDocuments(words)],
        validation_documents=[ListDocuments(words[:3])],
        packing=PackingOptions(max_seq_len=20, train_batch_size=2),
        **options,
    )


def key(batch):
    if hasattr(batch, "problems"):
        return batch.iteration, tuple(p.uid for p in batch.problems)
    return batch.iteration, tuple(batch.input_ids_RL.flatten().tolist())


def fit(tokenizer, data, ckpt_path=None, callbacks=(), **options):
    module = Recorder(tokenizer)
    trainer = make_trainer(max_epochs=2, callbacks=list(callbacks), **options)
    trainer.fit(module, data, ckpt_path=ckpt_path, weights_only=False)
    return [key(batch) for batch in module.seen]


@pytest.mark.long
@pytest.mark.parametrize("make", [problem_data, document_data, late_data])
def test_every_checkpoint_resumes_at_the_next_iteration(tokenizer, tmp_path, make):
    save = SaveEverywhere(tmp_path)
    options = {"val_check_interval": 2} if make is not late_data else {}
    seen = fit(tokenizer, make(num_iterations=5), callbacks=[save], **options)
    assert [iteration for iteration, _ in seen] == list(range(10))
    assert len({drawn for _, drawn in seen}) > 5
    kinds = [path.name.split("-")[0] for path, _ in save.saved]
    num_validations = 4 if options else 0
    assert kinds.count("batch") == 10 and kinds.count("epoch") == 2
    assert kinds.count("validation") == num_validations
    for path, done in save.saved:
        state = torch.load(path, weights_only=False)["loops"]["fit_loop"]["state_dict"]
        assert state["combined_loader"][0]["num_yielded"] == done, path.name
        resumed = fit(tokenizer, make(num_iterations=5), ckpt_path=path, **options)
        assert resumed == seen[done:], path.name


def test_an_epoch_cut_short_by_the_trainer_continues_and_resumes(tokenizer, tmp_path):
    save = SaveEverywhere(tmp_path)
    options = {"limit_train_batches": 3, "limit_val_batches": 0}
    seen = fit(tokenizer, problem_data(num_iterations=4), callbacks=[save], **options)
    assert [iteration for iteration, _ in seen] == list(range(6))
    for path, done in save.saved:
        resumed = fit(tokenizer, problem_data(num_iterations=4), ckpt_path=path, **options)
        assert resumed == seen[done:], path.name


def test_a_resume_with_other_data_is_refused(tokenizer, tmp_path):
    save = SaveEverywhere(tmp_path)
    fit(tokenizer, problem_data(num_iterations=2), callbacks=[save])
    with pytest.raises(ValueError, match=r"^ckpt_path: .* seed was 0 and is 1"):
        fit(tokenizer, problem_data(num_iterations=2, seed=1), ckpt_path=save.saved[0][0])


def test_late_problems_come_when_they_are_said_to(tokenizer):
    seen = fit(tokenizer, late_data(num_iterations=8))
    late = [any(uid.startswith("l") for uid in uids) for _, uids in seen]
    assert not any(late[:6]) and sum(late[6:]) > 5


def test_a_resume_with_problems_that_come_at_another_time_is_refused(tokenizer, tmp_path):
    save = SaveEverywhere(tmp_path)
    fit(tokenizer, late_data(num_iterations=4), callbacks=[save])
    other = late_data(num_iterations=4)
    other.problem_sources["train"][0].from_iteration = 5
    with pytest.raises(ValueError, match=r"num_problems_from_iteration was .*6: 12.* and is .*5"):
        fit(tokenizer, other, ckpt_path=save.saved[0][0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LateProblems(numbered(2), from_iteration=0), r"^from_iteration: 0 is not at"),
        (
            lambda: R1DataModule(train=[LateProblems(numbered(2), 3)], num_iterations=5),
            r"^data.train: no source has problems for iteration 0",
        ),
        (late_data, r"^data.num_iterations: null is one pass .* come from iteration 6 on"),
    ],
)
def test_late_problems_that_cannot_be_used_are_refused(tokenizer, make, message):
    with pytest.raises(ValueError, match=message):
        fit(tokenizer, make())


def test_late_problems_that_are_never_drawn_are_warned_of(tokenizer):
    with pytest.warns(UserWarning, match="iteration 6 on are never used in a run of 6"):
        fit(tokenizer, late_data(num_iterations=3))


def test_lightning_draws_no_batch_ahead(tokenizer):
    """The state after iteration i counts i + 1 batches: nothing has been prefetched."""
    yielded = []

    class Watch(SaveEverywhere):
        def _save(self, trainer, when):
            yielded.append(trainer.train_dataloader.num_yielded)

    fit(
        tokenizer,
        problem_data(num_iterations=2),
        callbacks=[Watch(None)],
        limit_val_batches=0,
    )
    assert yielded == [1, 2, 2, 3, 4, 4]
