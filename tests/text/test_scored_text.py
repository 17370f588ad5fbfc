"""What a reward model reads is made by one function, and says what it sees."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from r1lit.policy import load_tokenizer
from r1lit.text.scored_text import (
    cut_steps,
    encode_scored,
    pieces,
    scored_part,
    step_ends,
    token_places,
)

TOKENIZER = load_tokenizer(str(Path(__file__).parents[2] / "models" / "mini"))
THOUGHT = "<think> add them </think> It is <answer> 7 </answer>. "


def test_the_summary_is_what_follows_the_thinking():
    assert scored_part(THOUGHT, "summary") == "It is <answer> 7 </answer>."
    assert scored_part(THOUGHT, "response") == THOUGHT.strip()
    assert scored_part("Hello!", "summary") == "Hello!"
    assert scored_part("<think> and on and on", "summary") == ""
    assert scored_part("and on and on", "summary", think_prefilled=True) == ""
    assert scored_part("add </think> 7", "summary", think_prefilled=True) == "7"


def test_a_row_is_prompt_response_and_eos():
    (row,) = encode_scored(TOKENIZER, ["3 + 4?"], ["It is 7."], template="question_answer")
    prompt = TOKENIZER("Question: 3 + 4?\nAnswer:")["input_ids"]
    response = TOKENIZER("It is 7.", add_special_tokens=False)["input_ids"]
    assert list(row.tokens) == [*prompt, *response, TOKENIZER.eos_token_id]
    assert row.tokens[0] == TOKENIZER.bos_token_id
    assert row.num_response_tokens == len(response) and row.num_cut == 0


def test_a_long_row_loses_the_beginning_of_its_prompt():
    whole, = encode_scored(TOKENIZER, ["1 2 3 4 5 6"], ["7 8"], template="plain")  # fmt: skip
    cut, = encode_scored(TOKENIZER, ["1 2 3 4 5 6"], ["7 8"], template="plain",
                         max_tokens=len(whole.tokens) - 2)  # fmt: skip
    assert cut.num_cut == 2
    assert cut.tokens[0] == TOKENIZER.bos_token_id and cut.tokens[1:] == whole.tokens[3:]


def test_an_empty_text_is_prompt_and_eos_and_no_text_is_no_row():
    (row,) = encode_scored(TOKENIZER, ["hello"], [""], template="plain")
    assert row.num_response_tokens == 0 and row.tokens[-1] == TOKENIZER.eos_token_id
    assert encode_scored(TOKENIZER, [], [], template="plain") == []


def test_a_template_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="template: 'chatty'"):
        encode_scored(TOKENIZER, ["a"], ["b"], template="chatty")


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
