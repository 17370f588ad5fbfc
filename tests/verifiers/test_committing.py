"""Where a response to multiple choice commits to an option, and where it does not."""

import pytest

from r1lit.verifiers.choice import committing_text, read_choice

CHOICES = ["Rome", "Oslo", "Paris", "Lima"]


def chosen(response: str) -> int | None:
    text = committing_text(response)
    return None if text is None else read_choice(text, CHOICES)


@pytest.mark.parametrize(
    "response",
    [
        "Option C is correct.",
        "Rome is in Italy.\nTherefore, option (C) is the correct one.",
        "Option A is incorrect. Option C is correct.",
        "Rome is in Italy.\n\nC",
        "Rome is in Italy.\n\n**C**",
        "Rome is in Italy.\n\nC. Paris",
        "C\n\nRome is in Italy.",
        "C. Paris\n\nParis is the capital of France.",
        "It's C",
        "#### C",
        "Answer: C (Paris)",
        "The answer is C, Paris.",
        "C Paris",
        "The answer is C. Oslo and Lima are elsewhere.",
        "The answer is C; the others are elsewhere.",
    ],
)
def test_commits(response: str):
    assert chosen(response) == 2


@pytest.mark.parametrize(
    "response",
    [
        "The answer could be C",
        "The answer might be C.",
        "The answer cannot be C.",
        "The answer can't be C. So",
        "The correct option may be C",
        "I don't think option C is correct.",
        "Option C is not correct.",
        "Option C is correct. Option D is correct.",
        "The answer is C; D is also fine",
        "The answer is C. Or D.",
        "The answer is C. D is correct too.",
        "A\nB\nC",
        "A. Rome\nB. Oslo\nC. Paris\nD. Lima",
        "C. Paris\n\nOr is it (D)?",
        "C, Lima",
        "C (Lima)",
        "Rome.\nC. Lima",
        "Rome.\nC is not it",
        "<think> Rome.\n\nC",
    ],
)
def test_does_not_commit(response: str):
    assert chosen(response) is None
