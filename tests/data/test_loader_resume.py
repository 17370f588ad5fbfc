"""A resumed run sees exactly the batches that the uninterrupted one would have seen next."""

from __future__ import annotations

import pytest
import torch
from trainer_doubles import ListDocuments, Recorder, SaveEverywhere, make_trainer, numbered

from r1lit.data import Document, EvaluationOptions, PackingOptions, R1DataModule, RolloutOptions


def problem_data(**options):
    return R1DataModule(
        train=[numbered(11)],
        validation=[numbered(3, "v", "held out")],
        rollout=RolloutOptions(prompts_per_iteration=3, num_reserve_prompts=1),
        evaluation=EvaluationOptions(prompts_per_batch=2),
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


@pytest.mark.parametrize("make", [problem_data, document_data])
def test_every_checkpoint_resumes_at_the_next_iteration(tokenizer, tmp_path, make):
    save = SaveEverywhere(tmp_path)
    options = {"val_check_interval": 2}
    seen = fit(tokenizer, make(num_iterations=5), callbacks=[save], **options)
    assert [iteration for iteration, _ in seen] == list(range(10))
    assert len({drawn for _, drawn in seen}) > 5
    kinds = [path.name.split("-")[0] for path, _ in save.saved]
    assert (kinds.count("batch"), kinds.count("validation"), kinds.count("epoch")) == (10, 4, 2)
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
