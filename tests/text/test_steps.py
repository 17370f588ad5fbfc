"""Cutting responses into steps, and finding the tokens at which they end."""

from __future__ import annotations

from functools import partial

import pytest
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.text.pieces import pieces
from r1lit.text.scored_text import encode_scored
from r1lit.text.steps import cut_steps, step_ends, token_places

TOKENIZER = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
SEARCH = " <think> 8 + 7 = 15: 15 * 3 = 45 > 9. Wait, 8 - 7 = 1: 1 * 3 = 3 < 9. </think> 等等。 ok"


@pytest.mark.parametrize(
    ("text", "separators", "steps"),
    [
        ("a\n\nb\n\nc", ["\n\n"], ["a\n\n", "b\n\n", "c"]),
        ("a\n\n\n\nb\n", ["\n\n", "\n"], ["a\n\n\n\n", "b\n"]),  # several in a row are one end
        ("a\n b", ["\n\n"], ["a\n b"]),
        (" \n\na\n\n  ", ["\n\n"], [" \n\na\n\n"]),  # white space alone is no step
        ("", ["."], []),
        ("one. two。three", [".", "。"], ["one.", " two。", "three"]),
    ],
)
def test_steps(text, separators, steps):
    assert cut_steps(text, separators) == steps
    assert [len("".join(steps[: i + 1])) for i in range(len(steps))] == step_ends(text, separators)


@pytest.mark.parametrize("separators", [[], [""]])
def test_no_separator_is_refused(separators):
    with pytest.raises(ValueError, match="are not texts that end a step"):
        step_ends("a", separators)


def test_a_step_ends_in_the_token_that_holds_its_last_character():
    ids = TOKENIZER(SEARCH, add_special_tokens=False)["input_ids"]
    decode = partial(TOKENIZER.decode, skip_special_tokens=True)
    places = token_places(pieces(decode, ids), step_ends(SEARCH, [".", "。"]))
    read = [TOKENIZER.decode(ids[: place + 1]) for place in places]
    assert read == [SEARCH[:end] for end in step_ends(SEARCH, [".", "。"])] and len(read) == 4
    # behind its prompt, where a row's end token follows
    (row,) = encode_scored(TOKENIZER, ["How?"], [SEARCH], template="question_answer")
    *ends, last = row.places(TOKENIZER, step_ends(SEARCH, ["."]))
    assert [TOKENIZER.decode([row.tokens[place]]) for place in ends] == [".", "."]
    assert last == len(row.tokens) - 2
