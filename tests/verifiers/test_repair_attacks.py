"""No patch that leaves the bug in is paid, whatever its code does in the tests and after them."""

from __future__ import annotations

import pytest
from repair_attacks import ATTACKS, BUG, FORGED, HANGS
from tally import BUGGY, CORE, write_tally

from r1lit.problems import Problem, Verdict
from r1lit.sandbox.same_outcomes import same
from r1lit.text.patches import write_diff
from r1lit.verifiers import RepositoryVerifier

PATH = "tally/core.py"
FIRST, REST = CORE.split("def total")[0], "\n\ndef mean" + CORE.split("\n\ndef mean")[1]


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return write_tally(tmp_path_factory.mktemp("tally"))


def patch(code: str, body: str) -> str:
    """A patch whose tests pass, with some code at the module's beginning and a body of total."""
    source = f"{FIRST}\n{FORGED}\n{code}\n\n\ndef total(values):\n{body}\n{REST}"
    return write_diff({PATH: BUGGY}, {PATH: source})


@pytest.fixture(scope="module")
def verdicts(problem) -> dict[str, Verdict]:
    """All verdicts: two sandboxes at once are faster than one after the other."""
    verifier = RepositoryVerifier(timeout_s=60, num_workers=2)
    texts = {
        name: patch(*attack) for name, attack in {"nothing more": ("", BUG), **ATTACKS}.items()
    }
    try:
        found = verifier.verify_batch(list(texts.values()), [problem] * len(texts))
    finally:
        verifier.close()
    return dict(zip(texts, found, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_is_paid(verdicts, name):
    verdict = verdicts[name]
    assert (verdict.status, verdict.value) == ("wrong", 0.0), verdict


@pytest.mark.long
def test_the_tests_are_forged_so_that_the_hidden_part_decides(problem, verdicts):
    """Else the attacks would fail for another reason, and say nothing of it."""
    assert "hidden part" in verdicts["nothing more"].reason
    hidden = [name for name in ATTACKS if "hidden part" in verdicts[name].reason]
    assert len(hidden) > len(ATTACKS) - 6, set(ATTACKS) - set(hidden)
    verifier = RepositoryVerifier(num_workers=1, tests_alone=True)
    alone = Problem(**{**vars(problem), "meta": {**problem.meta, "calls": None}})
    try:
        assert verifier.verify(patch("", BUG), alone).status == "right"  # as VERIFIERS.md says
    finally:
        verifier.close()


@pytest.mark.long
@pytest.mark.parametrize("name", HANGS)
def test_a_patch_that_hangs_is_wrong(problem, name):
    verifier = RepositoryVerifier(timeout_s=6, num_workers=1)
    try:
        verdict = verifier.verify(patch(*HANGS[name]), problem)
    finally:
        verifier.close()
    assert verdict.status == "wrong", verdict


RETURNED = ["t", ["returned", ["i", "0x1"], ["l", []], ["d", []]]]


def outcome(value: object) -> object:
    return [["t", ["returned", value, ["l", []], ["d", []]]], []]


@pytest.mark.parametrize(
    ("right", "found"),
    [
        (["i", "0x1"], True),
        (["i", "0x1"], 1),
        (["i", "0x1"], ["f", (1.0).hex()]),
        (["f", (1.0).hex()], ["f", "nan"]),
        (["f", "nan"], ["f", (1.0).hex()]),
        (["f", "inf"], ["f", "nan"]),
        (["f", (1.0).hex()], ["f", "0x1p+99999999999"]),
        (["f", (1.0).hex()], ["f", ["list"]]),
        (True, 1),
        (False, ["i", "0x0"]),
        (None, False),
        ("a", ["b", "61"]),
        (["l", ["a"]], ["t", ["a"]]),
        (["l", ["a"]], ["s", ["a"]]),
        (["s", ["a", "b"]], ["s", ["a", "a"]]),
        (["s", ["a", "b"]], ["s", ["a", "b", "b"]]),
        (["d", [["a", True]]], ["d", [["a", True], ["a", False]]]),
        (["d", [["f", True]]], ["d", [["f", False]]]),
        (["d", [["s", "x"]]], ["d", "sx"]),
        (["n", ["P", ["f", "s"], [True, True]]], ["n", ["P", ["f", "s"], [True, False]]]),
        (["l", []], []),
        (["l", []], {}),
        (["l", [True]], [["l"], [True]]),
    ],
)
def test_outcomes_are_compared_by_exact_types(right, found):
    assert same(outcome(right), outcome(right))
    assert not same(outcome(right), outcome(found)) and not same(outcome(found), outcome(right))


@pytest.mark.parametrize(
    "found", [None, 1, "", [], {}, [[]], [[], []], ["raised", "builtins.ValueError"], [None, None]]
)
def test_a_reply_of_any_form_is_compared(found):
    assert not same(outcome(["i", "0x1"]), found)
    assert not same(["raised", "builtins.KeyError"], found)


@pytest.mark.parametrize(
    ("right", "found"),
    [
        (["f", (0.3).hex()], ["f", (0.1 + 0.2).hex()]),
        (["f", (0.0).hex()], ["f", (-0.0).hex()]),
        (["f", "nan"], ["f", "nan"]),
        (["s", ["a", "b"]], ["s", ["b", "a"]]),
        (["d", [["a", True], ["b", False]]], ["d", [["b", False], ["a", True]]]),
        (["c", ["0x1p+0", "0x0p+0"]], ["c", ["0x1.0p+0", "-0x0p+0"]]),
    ],
)
def test_equal_outcomes_are_the_same(right, found):
    assert same(outcome(right), outcome(found))
