from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from trainer_doubles import ListDocuments, ListProblems, Recorder, make_trainer, numbered

from r1lit.batches import PromptBatch
from r1lit.data import (
    Document,
    EvaluationOptions,
    LateProblems,
    PackingOptions,
    PromptOptions,
    R1DataModule,
    RolloutOptions,
    TableProblems,
)
from r1lit.data.packing import encode_prompts
from r1lit.supervised_batches import PackedRows
from r1lit.text.prompts import render

WORDS = [Document(prompt="p" * (i % 3), response="r" * (1 + i)) for i in range(12)]


def setup(data, tokenizer, stage="fit", context_length=None, **trainer):
    """Set up as Lightning does, without a trainer's cost."""
    module = Recorder(tokenizer, context_length)
    data.trainer = SimpleNamespace(lightning_module=module, is_global_zero=True, **trainer)
    data.setup(stage)
    return data


def test_a_fit_on_problems(tokenizer):
    data = R1DataModule(
        train=[numbered(6), numbered(4, "w", "other")],
        validation=[numbered(5, "v", "held out")],
        prompts=PromptOptions(template="question_answer"),
        rollout=RolloutOptions(prompts_per_iteration=4, group_size=3, num_reserve_prompts=2),
        num_iterations=3,
        evaluation=EvaluationOptions(num_samples=2, prompts_per_batch=3),
    )
    module = Recorder(tokenizer)
    make_trainer(max_epochs=1, num_sanity_val_steps=1).fit(module, data)
    assert [b.iteration for b in module.seen] == [0, 1, 2]
    for batch in module.seen:
        assert isinstance(batch, PromptBatch)
        assert (batch.num_prompts, len(batch.prompts), batch.group_size) == (4, 6, 3)
        for problem, prompt in zip(batch.problems, batch.prompts, strict=True):
            text = render("question_answer", problem.question)
            assert prompt == encode_prompts(tokenizer, [text])[0]
    sanity, *validated = module.validated
    assert [p.uid for b in validated for p in b.problems] == [f"v{i}" for i in range(5)]
    assert [(b.iteration, b.group_size) for b in validated] == [(0, 2), (1, 2)]
    assert sanity == validated[0]


def test_a_fit_on_documents(bos_tokenizer):
    data = R1DataModule(
        documents=[ListDocuments(WORDS)],
        validation_documents=[ListDocuments(WORDS[:5])],
        packing=PackingOptions(max_seq_len=20, train_batch_size=1),
    )
    module = Recorder(bos_tokenizer)
    make_trainer(max_epochs=1).fit(module, data)
    assert all(isinstance(b, PackedRows) for b in module.seen + module.validated)
    rows = torch.cat([b.input_ids_RL for b in module.seen])
    starts = torch.cat([b.position_ids_RL for b in module.seen]) == 0
    assert set(rows[starts].tolist()) == {bos_tokenizer.bos_token_id, bos_tokenizer.pad_token_id}
    assert (rows == bos_tokenizer.eos_token_id).sum() == 12
    responses = sum(int(b.loss_mask_RL.sum()) for b in module.seen)
    assert responses == sum(len(d.response) + 1 for d in WORDS)


def test_a_fit_on_documents_with_held_out_documents_and_problems(tokenizer):
    data = R1DataModule(
        documents=[ListDocuments(WORDS)],
        validation_documents=[ListDocuments(WORDS[:5])],
        validation=[numbered(5, "v", "held out")],
        packing=PackingOptions(max_seq_len=20, train_batch_size=1),
        evaluation=EvaluationOptions(num_samples=2, prompts_per_batch=3),
    )
    module = Recorder(tokenizer)
    make_trainer(max_epochs=1).fit(module, data)
    assert all(isinstance(b, PackedRows) for b in module.seen)
    rows = [b for b in module.validated if isinstance(b, PackedRows)]
    prompts = [b for b in module.validated if isinstance(b, PromptBatch)]
    assert len(rows) == len(data.rows["validation"])
    assert [p.uid for b in prompts for p in b.problems] == [f"v{i}" for i in range(5)]
    assert module.validated == [*rows, *prompts]


def test_held_out_problems_whose_prompts_are_imitated(tokenizer):
    """The prompt as sent counts: in another template the question is another prompt."""
    imitated = [Document(prompt=render("question_answer", "held out 1"), response="x"), *WORDS]
    both = {"documents": [ListDocuments(imitated)], "validation": [numbered(3, "v", "held out")]}
    same = both | {"prompts": PromptOptions(template="question_answer")}
    with pytest.raises(
        ValueError, match=r"^contamination: 1 of 3 problems of data.validation .* 'v1'"
    ):
        setup(R1DataModule(**same), tokenizer)
    setup(R1DataModule(**same, allow_overlap=True), tokenizer)
    setup(R1DataModule(**both, prompts=PromptOptions(template="plain")), tokenizer)


def test_padding_falls_back_on_eos(make_tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = None
    data = setup(
        R1DataModule(documents=[ListDocuments(WORDS)], packing=PackingOptions(max_seq_len=99)),
        tokenizer,
    )
    assert data.train_dataloader().pad_id == tokenizer.eos_token_id


def test_a_reload_within_a_fit_continues(tokenizer):
    data = R1DataModule(
        train=[numbered(9)], rollout=RolloutOptions(prompts_per_iteration=4), num_iterations=2
    )
    module = Recorder(tokenizer)
    make_trainer(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(module, data)
    assert [b.iteration for b in module.seen] == list(range(6))
    again = Recorder(tokenizer)
    make_trainer(max_epochs=1).fit(again, data)
    assert again.seen == module.seen[:2]


def test_test_and_predict_read_their_own_problems(tokenizer):
    data = R1DataModule(
        train=[numbered(4)],
        test=[numbered(3, "t", "tested")],
        evaluation=EvaluationOptions(prompts_per_batch=2, num_samples=5),
    )
    module, trainer = Recorder(tokenizer), make_trainer()
    trainer.test(module, data, verbose=False)
    assert [p.uid for b in module.tested for p in b.problems] == ["t0", "t1", "t2"]
    trainer.predict(module, data, return_predictions=False)
    assert [p.uid for b in module.predicted for p in b.problems] == ["u0", "u1", "u2", "u3"]
    assert {b.group_size for b in module.predicted} == {5}
    chosen = R1DataModule(train=[numbered(4)], predict=[numbered(1, "p", "sampled")])
    module = Recorder(tokenizer)
    make_trainer().predict(module, chosen, return_predictions=False)
    assert [p.uid for b in module.predicted for p in b.problems] == ["p0"]


def test_a_fit_without_validation(tokenizer):
    module = Recorder(tokenizer)
    make_trainer(max_epochs=1).fit(module, R1DataModule(train=[numbered(2)]))
    assert len(module.seen) == 1 and not module.validated


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"rollout": RolloutOptions(prompts_per_iteration=4)},
            r"^data.rollout.prompts_per_iteration: 4 does not divide among 3 processes",
        ),
        (
            {"rollout": RolloutOptions(prompts_per_iteration=3, num_reserve_prompts=4)},
            r"^data.rollout.num_reserve_prompts: 4 does not divide",
        ),
        (
            {"train": None, "documents": [1], "packing": PackingOptions(train_batch_size=8)},
            r"^data.packing.train_batch_size: 8 does not divide",
        ),
    ],
)
def test_sizes_that_do_not_divide_are_refused_before_anything_is_read(tokenizer, options, says):
    data = R1DataModule(**({"train": [1]} | options))  # a source that cannot be read
    with pytest.raises(ValueError, match=says):
        setup(data, tokenizer, distributed_sampler_kwargs={"rank": 0, "num_replicas": 3})


def test_each_process_takes_its_share(tokenizer):
    parts = []
    for rank in range(2):
        data = R1DataModule(
            train=[numbered(8)],
            validation=[numbered(5, "v", "held out")],
            rollout=RolloutOptions(prompts_per_iteration=4),
        )
        shared = {"rank": rank, "num_replicas": 2}
        setup(data, tokenizer, distributed_sampler_kwargs=shared)
        (held_out,) = data.val_dataloader()
        parts.append((data.train_dataloader().batch(0), list(held_out)))
    whole = setup(
        R1DataModule(train=[numbered(8)], rollout=RolloutOptions(prompts_per_iteration=4)),
        tokenizer,
    )
    assert parts[0][0].problems + parts[1][0].problems == whole.train_dataloader().batch(0).problems
    held_out = [p.uid for _, batches in parts for b in batches for p in b.problems]
    assert sorted(held_out) == [f"v{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"train": [numbered(1)], "documents": [ListDocuments(WORDS)]},
            r"^data.train and data.documents are both given",
        ),
        (
            {"validation_documents": [ListDocuments(WORDS)]},
            r"^data.validation_documents is given without data.documents",
        ),
        (
            {"train": [numbered(1)], "num_iterations": 0},
            r"^data.num_iterations: 0 is not",
        ),
    ],
)
def test_what_cannot_go_together_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        R1DataModule(**options)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        (PromptOptions, "prompts.max_tokens"),
        (RolloutOptions, "rollout.prompts_per_iteration"),
        (RolloutOptions, "rollout.group_size"),
        (PackingOptions, "packing.max_seq_len"),
        (PackingOptions, "packing.train_batch_size"),
        (EvaluationOptions, "evaluation.num_samples"),
        (EvaluationOptions, "evaluation.prompts_per_batch"),
    ],
)
def test_counts_are_at_least_1(options, key):
    with pytest.raises(ValueError, match=rf"^data.{key}: 0 is not at least 1$"):
        options(**{key.split(".")[1]: 0})


def test_a_reserve_may_be_0_and_not_less():
    assert RolloutOptions(num_reserve_prompts=0)
    with pytest.raises(
        ValueError, match=r"^data.rollout.num_reserve_prompts: -1 is not at least 0"
    ):
        RolloutOptions(num_reserve_prompts=-1)


@pytest.mark.parametrize(
    ("options", "stage", "message"),
    [
        ({}, "fit", r"^data: nothing is given to fit: neither data.train .* nor data.documents"),
        ({"test": [numbered(1)]}, "fit", r"^data: nothing is given to fit"),
        ({"train": [numbered(1)]}, "validate", r"to validate: data.validation is null"),
        ({"train": [numbered(1)]}, "test", r"to test: data.test is null"),
        ({"test": [numbered(1)]}, "predict", r"to predict: data.predict is null"),
        ({"train": [ListProblems([])]}, "fit", r"^data.train: its sources yield no problems"),
        ({"documents": [ListDocuments([])]}, "fit", r"sources of train yield no documents"),
        (
            {"train": [numbered(12)], "prompts": PromptOptions(template="plain", max_tokens=10)},
            "fit",
            r"^data.train: 2 of 12 prompts are longer than 10 tokens \(data.prompts.max_tokens\);"
            r" the longest, of problem 11, has 11; shorten them, or leave them out with"
            r" data.prompts.too_long: drop$",
        ),
        (
            {
                "train": [numbered(3)],
                "validation": [numbered(12, "v", "held out")],
                "prompts": PromptOptions(template="plain", max_tokens=12, too_long="drop"),
            },
            "fit",
            r"^data.validation: \d+ of 12 prompts .*; shorten them, or leave them out of the data$",
        ),
        (
            {
                "train": [numbered(3)],
                "prompts": PromptOptions(template="plain", max_tokens=2, too_long="drop"),
            },
            "fit",
            r"^data.train: all 3 prompts are longer than 2 tokens .* too_long: drop leaves none$",
        ),
        (
            {"train": [numbered(12)], "prompts": PromptOptions(template="plain")},
            "fit",
            r"^data.train: 2 of 12 .* than 10 tokens \(max_position_embeddings less 1\)",
        ),
        (
            {"documents": [ListDocuments(WORDS)], "packing": PackingOptions(max_seq_len=12)},
            "fit",
            r"^data.packing.max_seq_len: 12 tokens are too few for \d of \d+ documents: \d+ \(1\d\)"
            r".*; the longest has 15; raise it",
        ),
        (
            {"documents": [ListDocuments(WORDS)], "packing": PackingOptions(max_seq_len=20)},
            "fit",
            r"^data.packing.max_seq_len: 20 lets in a document of 15 tokens, .* is 11",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tokenizer, options, stage, message):
    with pytest.raises(ValueError, match=message):
        setup(R1DataModule(**options), tokenizer, stage, 11)


def test_truncation_when_asked_for(tokenizer):
    data = R1DataModule(
        documents=[ListDocuments(WORDS)],
        packing=PackingOptions(max_seq_len=12, too_long="truncate"),
    )
    plan = setup(data, tokenizer).describe()
    assert max(len(d) for d in data.documents["train"]) == 12
    assert plan["num_truncated_documents"] == sum(
        len(d.prompt) + len(d.response) + 1 > 12 for d in WORDS
    )


def test_the_module_must_have_a_tokenizer_with_an_eos(make_tokenizer):
    with pytest.raises(ValueError, match=r"^model: Recorder has no tokenizer"):
        setup(R1DataModule(train=[numbered(1)]), None)
    tokenizer = make_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match=r"^model: its tokenizer has no eos_token"):
        setup(R1DataModule(train=[numbered(1)]), tokenizer)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_leaks_are_refused_unless_allowed(tokenizer, split):
    train = numbered(4)
    by_uid = {"train": [train], split: [numbered(2, "u", "other words")]}
    by_text = {"train": [train], split: [ListProblems(["fine", " question\n2"], prefix="v")]}
    with pytest.raises(
        ValueError, match=rf"^contamination: 2 of 2 .* data.{split} have the uid .* 'u0'"
    ):
        setup(R1DataModule(**by_uid), tokenizer)
    with pytest.raises(
        ValueError, match=rf"^contamination: 1 of 2 .* data.{split} .* 'v1', in .* 'u2'"
    ):
        setup(R1DataModule(**by_text), tokenizer)
    for leak in (by_uid, by_text):
        setup(R1DataModule(**leak, allow_overlap=True), tokenizer)


def test_problems_with_long_prompts_are_dropped(tokenizer):
    data = R1DataModule(
        train=[LateProblems(numbered(11, "w", "a late question"), 2), numbered(12, "q")],
        prompts=PromptOptions(template="plain", max_tokens=10, too_long="drop"),
        rollout=RolloutOptions(prompts_per_iteration=2),
        num_iterations=4,
    )
    with pytest.warns(UserWarning, match=r"^data.train: 13 of 23 problems .*; the first is 'q10'$"):
        setup(data, tokenizer, max_epochs=1)
    assert [p.uid for p in data.problems["train"]] == [f"q{i}" for i in range(10)]
    assert len(data.prompt_ids["train"]) == 10
    assert data.num_problems_from["train"] == {0: 10, 2: 10}
    plan = data.describe()
    assert plan["num_train_problems"] == {"list": 10}
    assert plan["num_dropped_train_problems"] == 13


@pytest.mark.long
def test_gsm8k_does_not_leak_and_is_described(real, tokenizer):
    def gsm8k(split, limit=None):
        return TableProblems(
            str(real / f"gsm8k_{split}.jsonl"),
            answer_pattern=r"####\s*(.+)",
            answer_remove=",",
            source="gsm8k",
            limit=limit,
        )

    data = R1DataModule(
        train=[gsm8k("train"), numbered(3)],
        validation=[gsm8k("test")],
        prompts=PromptOptions(template="plain"),
    )
    plan = setup(data, tokenizer).describe()
    assert plan["num_train_problems"] == {"gsm8k": 7473, "list": 3}
    assert plan["num_validation_problems"] == {"gsm8k": 1319}
    assert plan["num_iterations"] == 7476 // 16
    assert plan["longest_train_prompt"] == max(len(p) for p in data.prompt_ids["train"])
    leaking = R1DataModule(train=[gsm8k("test", 99)], validation=[gsm8k("test", 77)])
    with pytest.raises(ValueError, match="contamination: 77 of 77"):
        setup(leaking, tokenizer)


def test_documents_are_described(tokenizer):
    data = R1DataModule(
        documents=[ListDocuments(WORDS)], packing=PackingOptions(max_seq_len=20, train_batch_size=2)
    )
    plan = setup(data, tokenizer).describe()
    num_tokens = sum(len(d.prompt) + len(d.response) + 1 for d in WORDS)
    first_is_response = sum(not d.prompt for d in WORDS)
    assert plan["train_num_tokens"] == num_tokens
    assert plan["train_num_targets"] == (
        sum(len(d.response) + 1 for d in WORDS) - first_is_response
    )
    assert plan["train_fill"] == num_tokens / (20 * plan["train_num_rows"])
    assert plan["num_iterations"] == plan["train_num_rows"] // 2
