"""The 25 instruction types: followed, not followed, strict, loose, and like the reference."""

import importlib.util
import json
import string
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("lm_eval")
pytest.importorskip("nltk")
pytest.importorskip("immutabledict")

from r1lit.batches import Problem
from r1lit.verifiers import IFEvalVerifier
from r1lit.verifiers import ifeval as ifeval_module
from r1lit.verifiers.ifeval import INSTRUCTIONS, MAX_CHARACTERS

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ENGLISH = "the weather was pleasant and we walked along the river for an hour"
CASES = {
    # identifier: (kwargs, a text that follows, one that does not)
    "keywords:existence": ({"keywords": ["river", "moon"]}, "River by moon", "River by sun"),
    "keywords:frequency": (
        {"keyword": "so", "frequency": 2, "relation": "at least"}, "so and so", "so and as",
    ),
    "keywords:forbidden_words": ({"forbidden_words": ["moon"]}, "moonlight", "a moon."),
    "keywords:letter_frequency": (
        {"letter": "z", "let_frequency": 2, "let_relation": "less than"}, "zoo", "zigzag",
    ),
    "language:response_language": (
        {"language": "de"}, "Das Wetter war sehr schön und wir gingen lange spazieren.", ENGLISH,
    ),
    "length_constraints:number_sentences": (
        {"num_sentences": 3, "relation": "less than"},
        "I met Dr. Who. He left at 5 p.m. sharp.",
        "One came. Two came. Three came.",
    ),
    "length_constraints:number_paragraphs": (
        {"num_paragraphs": 2}, "one\n\n***\n\ntwo", "one\n\ntwo",
    ),
    "length_constraints:number_words": (
        {"num_words": 4, "relation": "at least"}, "one two three four", "one two three",
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
        "one\n\nSo it is",
        "so\n\nit is",
    ),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[a] [b]", "[a] (b)"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "x\nP.S. y", "x\nPS y"),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* a\n- b", "* a\n- b\n* c"),
    "detectable_format:constrained_response": ({}, "My answer is yes.", "Yes."),
    "detectable_format:number_highlighted_sections": (
        {"num_highlights": 2}, "*one* and **two**", "*one* and two",
    ),
    "detectable_format:multiple_sections": (
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1\na\nSECTION 2\nb",
        "Section 1\na\nSection 2\nb",
    ),
    "detectable_format:json_format": ({}, '```json\n{"a": 1}\n```', "{'a': 1}"),
    "detectable_format:title": ({}, "<<A title>>\ntext", "<<>>\ntext"),
    "combination:two_responses": ({}, "one ****** two", "one ****** one"),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Say it."}, "Say it. It.", "It. Say it."),
    "startend:end_checker": ({"end_phrase": "That is all."}, "x. That is all.", "That is all. x"),
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "less than"}, "ONE two", "ONE TWO",
    ),
    "change_case:english_capital": ({}, ENGLISH.upper(), ENGLISH.upper() + " a"),
    "change_case:english_lowercase": ({}, ENGLISH, ENGLISH + " A"),
    "punctuation:no_comma": ({}, "one two", "one, two"),
    "startend:quotation": ({}, '"one"', 'one "two"'),
}  # fmt: skip


@pytest.fixture(scope="module")
def strict() -> Iterator[IFEvalVerifier]:
    verifier = IFEvalVerifier(timeout_s=60.0, num_workers=1)
    yield verifier
    verifier.close()


@pytest.fixture(scope="module")
def loose() -> Iterator[IFEvalVerifier]:
    verifier = IFEvalVerifier(loose=True, timeout_s=60.0, num_workers=1)
    yield verifier
    verifier.close()


def problem(*names: str, **changes: object) -> Problem:
    meta = {"instruction_id_list": list(names), "kwargs": [CASES[n][0] for n in names], **changes}
    return Problem(uid="i1", question="", answer="", source="ifeval", meta=meta)


def test_every_type_is_here():
    assert len(INSTRUCTIONS) == 25 and CASES.keys() == INSTRUCTIONS.keys()


@pytest.mark.long
def test_each_type_is_followed_and_not(strict: IFEvalVerifier, loose: IFEvalVerifier):
    names = list(CASES)
    problems = [problem(name) for name in names]
    for verifier in (strict, loose):
        good = verifier.verify_batch([CASES[name][1] for name in names], problems)
        assert [v.status for v in good] == ["right"] * 25, dict(zip(names, good, strict=True))
        assert [v.reason for v in good] == [f"followed {name}" for name in names]
    bad = strict.verify_batch([CASES[name][2] for name in names], problems)
    assert [v.status for v in bad] == ["wrong"] * 25, dict(zip(names, bad, strict=True))
    assert [v.reason for v in bad] == [f"not followed {name}" for name in names]
    assert all(v.canonical is None for v in good + bad)


def test_all_must_be_followed_and_each_is_told(strict: IFEvalVerifier):
    both = problem("punctuation:no_comma", "startend:quotation")
    verdict = strict.verify('"one, two"', both)
    assert (verdict.value, verdict.status) == (0.0, "wrong")
    assert verdict.reason == "followed startend:quotation; not followed punctuation:no_comma"
    assert strict.verify('"one two"', both).value == 1.0


@pytest.mark.parametrize(
    "response", ["Sure, here:\none two", "one two\nBye, bye", "Hi,\none two\nBye,"]
)
def test_loose_drops_lines_and_asterisks(
    strict: IFEvalVerifier, loose: IFEvalVerifier, response: str
):
    assert strict.verify(response, problem("punctuation:no_comma")).status == "wrong"
    assert loose.verify(response, problem("punctuation:no_comma")).status == "right"
    starred = "**My answer is yes.**"
    answer = problem("detectable_format:constrained_response")
    ended = problem("startend:end_checker")
    assert strict.verify(starred, answer).status == "right"  # the reference looks for it anywhere
    assert strict.verify("x. *That is all.*", ended).status == "wrong"
    assert loose.verify("x. *That is all.*", ended).status == "right"


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ("<think> a, b </think> one two", "right"),
        ("<think> a, b </think> <answer> one two </answer>", "right"),
        ("<think> a b </think> one, two", "wrong"),
        ("<think> one two", "unparsed"),
        ("<think> one two </think>", "unparsed"),
        ("", "unparsed"),
        (" \n ", "unparsed"),
        ("x" * (MAX_CHARACTERS + 1), "unparsed"),
        ("x y " * 90_000, "right"),
    ],
)
def test_what_is_judged(strict: IFEvalVerifier, response: str, status: str):
    assert strict.verify(response, problem("punctuation:no_comma")).status == status


@pytest.mark.parametrize("text", ["!!!", "12345", "* * *", "😀😀"])
def test_text_without_language_is_in_no_language(strict: IFEvalVerifier, text: str):
    names = ("language:response_language", "change_case:english_lowercase")
    for verdict in strict.verify_batch([text] * 2, [problem(name) for name in names]):
        assert verdict.status == "wrong"
    assert strict.verify("[" * 100_000, problem("detectable_format:json_format")).status == "wrong"


@pytest.mark.long
def test_a_slow_text_is_a_timeout_and_no_harm():
    verifier = IFEvalVerifier(timeout_s=1.0, num_workers=1)
    many = problem("length_constraints:number_sentences")
    simple = problem("punctuation:no_comma")
    assert verifier.verify("warm", simple).status == "right"
    slow = [CASES["language:response_language"][1] * 6000, "one two"]
    kinds = ["language:response_language"] * 400
    heavy = problem(*kinds)
    verdicts = verifier.verify_batch([slow[0], slow[1], "Fine."], [heavy, simple, many])
    verifier.close()
    assert [v.status for v in verdicts] == ["timeout", "right", "right"]


BAD = [
    ({"instruction_id_list": []}, "instruction_id_list of problem 'i1'"),
    ({"instruction_id_list": ["punctuation:no_coma"]}, "names 'punctuation:no_coma', none of"),
    ({"kwargs": None}, "kwargs of problem 'i1' is None, not a list of 1"),
    ({"kwargs": [{}, {}]}, "not a list of 1 mappings"),
    ({"kwargs": [{"num_words": 5, "relation": None}]}, "'length_constraints:number_words' no rel"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_problems_are_told(strict: IFEvalVerifier, changes: dict, message: str):
    with pytest.raises(ValueError, match=message):
        strict.verify("x", problem("length_constraints:number_words", **changes))


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="timeout_s: 0"):
        IFEvalVerifier(timeout_s=0)
    with pytest.raises(ValueError, match="num_workers: 0"):
        IFEvalVerifier(num_workers=0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    found = importlib.util.find_spec

    def find_spec(name: str):
        return None if name == "lm_eval" else found(name)

    monkeypatch.setattr(ifeval_module.importlib.util, "find_spec", find_spec)
    with pytest.raises(ImportError, match=r"need lm_eval: pip install 'r1lit\[ifeval\]'"):
        IFEvalVerifier().verify("x", problem("punctuation:no_comma"))


@pytest.mark.long
def test_the_splitter_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without nltk's data the untrained splitter works and says so; with the data it is used."""
    from nltk.tokenize.punkt import PunktParameters, save_punkt_params

    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    empty, filled = IFEvalVerifier(num_workers=1), IFEvalVerifier(num_workers=1)
    try:
        import nltk

        nltk.data.find("tokenizers/punkt_tab/english/")
        trained = True
    except LookupError:
        trained = False
    at_most_one = problem("length_constraints:number_sentences")
    at_most_one.meta["kwargs"][0] = {"num_sentences": 2, "relation": "less than"}
    if not trained:
        with pytest.warns(UserWarning, match="punkt_tab is not installed"):
            assert empty.verify("See zzq. Foo", at_most_one).status == "wrong"
        assert empty.splitter == "punkt without trained data"
    parameters = PunktParameters()
    parameters.abbrev_types = {"zzq"}
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    save_punkt_params(parameters, dir=str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not trained:
            assert filled.verify("See zzq. foo", at_most_one).status == "right"
    if not trained:
        assert filled.splitter == "punkt_tab"
    empty.close()
    filled.close()


REFERENCE = """
import json, runpy, sys
runpy.run_path(sys.argv[1])["start"]()
from lm_eval.tasks.ifeval import utils
for line in sys.stdin:
    row = json.loads(line)
    one = utils.InputExample(row["key"], row["instruction_id_list"], row["prompt"], row["kwargs"])
    strict = utils.test_instruction_following_strict(one, row["text"]).follow_instruction_list
    loose = utils.test_instruction_following_loose(one, row["text"]).follow_instruction_list
    print(json.dumps([strict, loose]))
"""


@pytest.mark.long
@pytest.mark.skipif(not (DATA / "ifeval_input.jsonl").is_file(), reason="no shared data")
def test_the_published_problems_as_lm_eval_decides(strict: IFEvalVerifier, loose: IFEvalVerifier):
    """All 540 prompts with texts that follow some instructions, beside lm-eval's own loop."""
    lines = (DATA / "ifeval_input.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for n, row in enumerate(rows):
        example = CASES[row["instruction_id_list"][n % len(row["instruction_id_list"])]]
        texts = [f"**Reply**\n\n{row['prompt']}\n\nP.S. Done.", example[1], example[2]]
        row["text"] = texts[n % 3]
    script = Path(ifeval_module.__file__).with_name("ifeval_worker.py")
    done = subprocess.run(
        [sys.executable, "-c", REFERENCE, str(script)],
        input="\n".join(map(json.dumps, rows)),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert len(expected) == 540
    problems = [
        Problem(uid=str(row["key"]), question=row["prompt"], answer="", source="ifeval", meta=row)
        for row in rows
    ]
    right = [0, 0]
    for at, verifier in enumerate((strict, loose)):
        verdicts = verifier.verify_batch([row["text"] for row in rows], problems)
        for verdict, row, lists in zip(verdicts, rows, expected, strict=True):
            if any(not k.get("letter", "a").isalpha() for k in row["kwargs"]):
                continue  # of these the reference counts a random letter
            names = row["instruction_id_list"]
            followed = [n for n, yes in zip(names, lists[at], strict=True) if yes]
            assert verdict.value == float(all(lists[at])), row
            told = verdict.reason.split("; ")
            assert (f"followed {', '.join(followed)}" in told) == bool(followed), row
            right[at] += int(verdict.value)
    assert 50 < right[0] < right[1] < 400, right


@pytest.mark.long
def test_a_letter_that_is_none_is_counted(strict: IFEvalVerifier):
    given = {"letter": "#", "let_frequency": 2, "let_relation": "at least"}
    hashes = problem("keywords:letter_frequency", kwargs=[given])
    for _ in range(5):
        assert strict.verify("# one # two", hashes).status == "right"
        assert strict.verify("# aaa bbb ccc " + string.ascii_letters * 3, hashes).status == "wrong"
