"""Pairs and labels from tables, their split by prompt, and the order that batches come in."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tiny import ROOT

from r1lit.data import PreferenceDataModule, TableLabels, TablePairs
from r1lit.data.preference_data import (
    encode_examples,
    refuse_shared_groups,
    split_examples,
)
from r1lit.data.preferences import Example
from r1lit.policy import load_tokenizer

TURN = "\n\nAssistant:"
REAL = ROOT / ".." / "shared" / "data"


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def example(group: str, *responses: str, label: float = 1.0) -> Example:
    return Example(question=group, responses=responses, label=label, group=group)


def test_conversations_part_after_the_last_turn_they_share(tmp_path):
    asked = f"\n\nHuman: Hi{TURN} Hello.\n\nHuman: And now?{TURN}"
    rows = [
        {"chosen": asked + " Now this.", "rejected": asked + " Now that."},
        # they part within a later turn, so the response is the rest of the conversation
        {
            "chosen": f"\n\nHuman: Hi{TURN} Yes.\n\nHuman: Sure?{TURN} Sure.",
            "rejected": f"\n\nHuman: Hi{TURN} No.\n\nHuman: Sure?{TURN} Sure.",
        },
    ]
    found = TablePairs(write(tmp_path / "a.jsonl", rows), prompt=None, turn=TURN).examples()
    assert found[0].question == asked and found[0].responses == (" Now this.", " Now that.")
    assert found[1].question == f"\n\nHuman: Hi{TURN}"
    assert found[1].responses[1] == f" No.\n\nHuman: Sure?{TURN} Sure."
    assert found[0].group == found[1].group == "\n\nHuman: Hi"
    assert {e.label for e in found} == {1.0}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"chosen": "Hello", "rejected": "Hullo"}, "do not share a beginning"),
        ({"chosen": "Hello"}, "rejected"),
    ],
)
def test_conversations_that_cannot_be_used_are_named(tmp_path, row, says):
    source = TablePairs(write(tmp_path / "a.jsonl", [row]), prompt=None, turn=TURN)
    with pytest.raises(ValueError, match=says):
        source.examples()


def test_a_turn_goes_with_whole_conversations_only():
    with pytest.raises(ValueError, match="conversations need a turn and no prompt"):
        TablePairs("a.jsonl", turn=TURN)
    with pytest.raises(ValueError, match="other pairs a prompt and no turn"):
        TablePairs("a.jsonl", prompt=None)


def test_labels_are_read_as_they_are_written(tmp_path):
    cells = ["safe", "Unsafe", True, 0]
    rows = [{"prompt": f"P{n}", "response": f"R{n}", "label": c} for n, c in enumerate(cells)]
    path = write(tmp_path / "a.jsonl", rows)
    assert [e.label for e in TableLabels(path).examples()] == [1.0, 0.0, 1.0, 0.0]
    prompts = TableLabels(path, response=None).examples()
    assert [(e.question, e.responses) for e in prompts[:2]] == [("P0", ("",)), ("P1", ("",))]
    rows[2]["label"] = "perhaps"
    with pytest.raises(ValueError, match=r"row 3 of .* holds 'perhaps' in column 'label'"):
        TableLabels(write(tmp_path / "b.jsonl", rows)).examples()


def test_a_prompt_is_on_one_side_only_and_the_order_stays():
    examples = [example(f"p{n % 10}", f"a{n}", "b") for n in range(40)]
    train, held_out = split_examples(examples, 0.3, seed=0)
    groups = {e.group for e in train}, {e.group for e in held_out}
    assert len(groups[1]) == 3 and not groups[0] & groups[1]
    assert sorted([*train, *held_out], key=examples.index) == examples
    assert train == sorted(train, key=examples.index)
    assert split_examples(examples, 0.3, seed=0) == (train, held_out)
    assert split_examples(examples, 0.3, seed=1)[1] != held_out
    assert len(split_examples(examples[:2], 0.0001, seed=0)[1]) == 1
    with pytest.raises(ValueError, match="one prompt only"):
        split_examples([example("p", "a", "b")] * 3, 0.5, seed=0)


def test_a_prompt_that_is_trained_on_may_not_be_held_out():
    train = [example("How are you?", "a", "b")]
    refuse_shared_groups(train, [example("Who are you?", "a", "b")], "validation")
    with pytest.raises(
        ValueError, match=r"contamination: 1 of 2 examples of data.test .* 'How  are you"
    ):
        held_out = [example("Who are you?", "a", "b"), example("How  are you?", "a", "b")]
        refuse_shared_groups(train, held_out, "test")


@pytest.fixture(scope="module")
def tokenizer(policy):
    return load_tokenizer(str(policy))


def encoded(tokenizer, examples, too_long, max_tokens=24):
    return encode_examples(
        examples, tokenizer, template="plain", score_on="response", max_tokens=max_tokens,
        too_long=too_long, key="data.train",
    )  # fmt: skip


def test_rows_that_are_too_long(tokenizer):
    long = example("1 2 3 4 5 6 7 8 9 " * 4, "10 11", "12")
    short = example("Hi", "13", "14")
    cut = encoded(tokenizer, [long, short], "cut")
    assert (cut.num_cut, cut.num_dropped) == (1, 0)
    row = cut.examples[0].rows[0].tolist()
    assert len(row) == 24 and row[0] == tokenizer.bos_token_id and row[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(row[1:-1]).endswith("7 8 9 10 11")
    assert cut.examples[0].lengths[1] < cut.examples[0].lengths[0]
    dropped = encoded(tokenizer, [long, short], "drop")
    assert (dropped.num_dropped, [e.group for e in dropped.examples]) == (1, ["Hi"])
    with pytest.raises(ValueError, match=r"data\.train: a row has \d+ tokens, more than the 24"):
        encoded(tokenizer, [long, short], "error")
    with pytest.raises(ValueError, match="all 1 examples are longer than max_tokens: 24"):
        encoded(tokenizer, [long], "drop")


def test_a_labelled_prompt_is_as_long_as_its_row_and_a_response_as_itself(tokenizer):
    """Else every prompt had length 0, and length alone looked like chance."""
    given = [example("1 2 3", ""), example("1", ""), example("1 2 3", "4 5")]
    prompts = encoded(tokenizer, given, "error").examples
    assert [e.lengths for e in prompts[:2]] == [(len(e.rows[0]),) for e in prompts[:2]]
    assert prompts[0].lengths > prompts[1].lengths
    assert prompts[2].lengths == (len(tokenizer("4 5", add_special_tokens=False).input_ids),)


def test_pairs_and_labels_do_not_mix():
    with pytest.raises(ValueError, match="a model learns from one"):
        PreferenceDataModule(train=[TablePairs("a.jsonl")], validation=[TableLabels("b.jsonl")])


@pytest.mark.parametrize("share", [1.0, -0.1])
def test_a_share_that_leaves_nothing_or_is_negative_is_refused(share):
    with pytest.raises(ValueError, match=rf"data.validation_share: {share} is not in \[0, 1\)"):
        PreferenceDataModule(train=[TablePairs("a.jsonl")], validation_share=share)


@pytest.mark.skipif(
    not (REAL / "xstest_prompts.csv").is_file(), reason="the shared data is not here"
)
def test_the_real_tables_are_read_whole():
    pairs = TablePairs(
        str(REAL / "hh_harmless_base_test.jsonl.gz"), prompt=None, turn=TURN
    ).examples()
    assert len(pairs) == 2312
    assert all(e.question.endswith(TURN) for e in pairs)
    labels = TableLabels(str(REAL / "xstest_prompts.csv"), response=None).examples()
    assert Counter(e.label for e in labels) == {1.0: 250, 0.0: 200}
