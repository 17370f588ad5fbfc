"""Eq. 7 of R1 on sentences of known composition, and on real responses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
from langdetect.detector_factory import DetectorFactory

from r1lit.metrics import language_consistency, language_of
from r1lit.worlds import WorldCorpus

REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
PARAGRAPHS = dict(
    line.split(" ", 1)
    for line in Path(__file__).with_name("paragraphs.txt").read_text("utf-8").splitlines()
)
"""What somebody might think about a problem, in 31 languages."""
HAN = re.compile(r"[\u4e00-\u9fff]")
real = pytest.mark.skipif(
    not (REAL / "code_switched.jsonl").is_file(), reason="the shared data is not here"
)


@pytest.mark.parametrize(
    ("thinking", "language", "share"),
    [
        ("Wait, let me check that.", "en", 1.0),
        ("people mistakenly认为 more", "en", 3 / 5),
        ("我们先算 sum of squares 再看", "zh", 6 / 9),
        ("设 x 为整数，则 DNA 与 sin x 无关", "zh", 1.0),
        ("这是中文。これは日本語です。", "zh", 4 / 12),
        ("これは日本語です。", "ja", 1.0),
        ("これは日本語です。我们先来看看这个问题吧。", "ja", 8 / 19),
        ("検討中。これでよい。", "ja", 1.0),
        ("먼저 생각해 보자 okay", "ko", 3 / 4),
        ("Сначала проверим the sum", "ru", 2 / 4),
        ("Wait, `代码` and $数$ stay out", "en", 1.0),
        ("3 + 4 = 7", "en", 0.0),
        ("```\nwords in code only\n```", "en", 0.0),
        ("", "en", 0.0),
    ],
)
def test_the_share_of_words_of_the_target_language(thinking: str, language: str, share: float):
    assert language_consistency(thinking, language) == pytest.approx(share)


@pytest.mark.parametrize(
    "foreign",
    [
        "Donc la réponse doit être sept, mais je vais encore vérifier la somme des nombres",
        "Also ist die Antwort wohl sieben, aber ich prüfe die Summe noch einmal",
        "Jadi jawabannya pasti tujuh, tetapi saya akan memeriksanya lagi",
        "Vậy đáp án phải là bảy, nhưng tôi sẽ kiểm tra lại",
    ],
)
def test_sentences_of_another_language_in_the_same_script(foreign: str):
    english = "Let me think about it again. The sum is divisible by three."
    thinking = f"{english} {foreign}. So the answer must be seven, but let me check that."
    assert language_consistency(thinking, "en", same_script=False) == 1.0
    share = (12 + 11) / (12 + 11 + len(foreign.split()))
    assert language_consistency(thinking, "en") == pytest.approx(share, abs=0.03)
    assert language_consistency(english, "en") == 1.0


@pytest.mark.parametrize(
    "text", ["La réponse est donc sept.", "Myślę, że to jest siedem.", "Câu trả lời là bảy."]
)
def test_a_short_sentence_alone_is_in_its_language_too(text: str):
    assert language_consistency(text, "en") == 0.0
    for english in ("Let's list all possible sequences.", "Plugging in $n$, we get seven."):
        assert language_consistency(english, "en") == 1.0


@pytest.mark.parametrize("target", PARAGRAPHS)
def test_a_paragraph_is_in_its_language_and_in_no_other(target: str):
    shares = {code: language_consistency(text, target) for code, text in PARAGRAPHS.items()}
    assert shares.pop(target) >= 0.9
    assert max(shares.values()) <= 0.2, shares


@pytest.mark.parametrize(
    ("one", "other"), [("en", "fr"), ("de", "nl"), ("pl", "cs"), ("ru", "uk"), ("ar", "fa")]
)
def test_mixed_text_is_in_between(one: str, other: str):
    pairs = zip(PARAGRAPHS[one].split(". "), PARAGRAPHS[other].split(". "), strict=True)
    halves = f"{PARAGRAPHS[one]} {PARAGRAPHS[other]}"
    for text in (halves, ". ".join(sentence for pair in pairs for sentence in pair)):
        for target in (one, other):
            assert 0.3 <= language_consistency(text, target) <= 0.7
        assert language_consistency(text, "fi") <= 0.2


def test_the_small_worlds_pages_score_as_by_script_alone():
    """Their sentences are too short and too strange to be told apart by letters."""
    for page in WorldCorpus(num_documents=400).documents():
        for language in ("en", "zh"):
            by_script = language_consistency(page.response, language, same_script=False)
            assert language_consistency(page.response, language) == by_script, page.response


def test_an_unknown_language_is_named():
    with pytest.raises(ValueError, match="language: 'english' is not one of"):
        language_consistency("words", "english")


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What is 3 + 4?", "en"),
        ("Compute $\\sin 60^\\circ$.", "en"),
        ("3 + 4 = ?", "en"),
        ("", "en"),
        ("求 $3 + 4$ 的值。", "zh"),
        ("小明有三个苹果，又买了 two apples，一共有几个？", "zh"),
        ("太郎はりんごを3個持っています。全部で何個ですか。", "ja"),
        ("철수는 사과를 세 개 가지고 있다. 모두 몇 개인가?", "ko"),
        ("Combien de pommes Marie a-t-elle après en avoir acheté trois de plus ?", "fr"),
        ("Wie viele Äpfel hat Maria, nachdem sie drei weitere gekauft hat?", "de"),
        ("¿Cuántas manzanas tiene María después de comprar tres más?", "es"),
        ("Сколько яблок у Маши, если она купила ещё три яблока?", "ru"),
        ("Скільки яблук у Марійки, якщо вона купила ще три яблука?", "uk"),
        ("Πόσα μήλα έχει η Μαρία;", "el"),
        ("मारिया के पास कुल कितने सेब हैं?", "hi"),
        ("كم عدد التفاحات التي لدى مريم الآن؟", "ar"),
        ("มาเรียมีแอปเปิลกี่ลูก", "th"),
    ],
)
def test_the_language_of_a_question(question: str, language: str):
    assert language_of(question) == language


PROGRAM = """
import random, sys
random.seed(int(sys.argv[1]))
from r1lit.metrics import language_of
print([language_of(q) for q in sys.stdin.read().splitlines()])
"""


@pytest.mark.slow
def test_every_process_finds_the_same_language():
    questions = "Find all n with n mod 7.\nPi a la sum in de x\nno me so te\nSimplify a/b + c/d"
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(seed)],
            input=questions,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[2])},
        ).stdout
        for seed in (1, 2)
    }
    assert len(found) == 1


def test_the_global_seed_of_langdetect_is_left_alone():
    before = DetectorFactory.seed
    language_of("This sentence is not in any cache of any kind, is it?")
    assert DetectorFactory.seed is before


def responses(name: str) -> list[dict[str, Any]]:
    with (REAL / name).open() as lines:
        return [json.loads(line) for line in lines]


def consistency(row: dict[str, Any]) -> float:
    text = (row["thinking"] or "") + "\n" + row["output"]
    return language_consistency(text, language_of(row["prompt"]))


@pytest.mark.long
@real
def test_mixed_responses_rank_below_clean_ones():
    clean = [consistency(row) for row in responses("r1_traces.jsonl")]
    mixed = [consistency(row) for row in responses("code_switched.jsonl")]
    assert len(clean) == 195 and len(mixed) == 25
    assert set(clean) == {1.0}
    assert max(mixed) < 1.0
    # the table of docs/REWARDS.md
    assert mean(mixed) == pytest.approx(0.8787, abs=5e-5)
    assert median(mixed) == pytest.approx(0.9967, abs=5e-5)
    assert (min(mixed), max(mixed)) == pytest.approx((0.0, 0.9998), abs=5e-5)


@real
def test_clean_thinking_with_foreign_words_put_in_loses_their_share():
    """Ten words in a hundred replaced by one Han character each: 0.9 is left."""
    rows = responses("r1_traces.jsonl")[::20]
    for row in rows:
        words = re.findall(r"[A-Za-z]+", row["thinking"])
        mixed = ["认" if i % 10 == 0 else word for i, word in enumerate(words)]
        expected = 1 - len(words[::10]) / len(words)
        assert language_consistency(" ".join(mixed), "en") == pytest.approx(expected)


@real
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gsm8k_test.jsonl", "question"),
        ("math500.jsonl", "problem"),
        ("mmlu_dev_val.jsonl", "question"),
    ],
)
def test_the_questions_of_benchmarks_are_english(name: str, key: str):
    found = [(language_of(row[key]), row[key]) for row in responses(name)[::4]]
    assert [item for item in found if item[0] != "en"] == []
