"""The small world: splits that do not touch, problems that are right, searches that are right."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from r1lit.batches import Problem
from r1lit.data.packing import encode_documents, encode_prompts
from r1lit.metrics import language_consistency
from r1lit.seeding import generator
from r1lit.text.prompts import render
from r1lit.verifiers import CountdownVerifier
from r1lit.worlds import WorldChain, WorldCorpus, WorldCountdown, russian
from r1lit.worlds import chain as chains
from r1lit.worlds.countdown import SearchOrder, branches, number_sets, step, targets
from r1lit.worlds.language import PHRASES, Voice
from r1lit.worlds.writing import search

MINI = Path(__file__).resolve().parents[2] / "models" / "mini"
ASKED = re.compile(r"(?:Using|用) (\d+), (\d+) (?:and|和) (\d+), (?:make|得到) (\d+)[.。]")
CHAIN = re.compile(
    r"Start with \d+(?:, (?:plus|minus|times|over) \d+)+\."
    r"|从 \d+ 开始(?:, (?:加|减|乘|除以) \d+)+。"
)
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")
OPERATE = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
           "/": lambda a, b: a / b}  # fmt: skip
SPLITS = ("corpus", "train", "held_out")


@pytest.fixture(scope="module")
def pages():
    return WorldCorpus(1500, seed=0).documents()


@pytest.fixture(scope="module")
def texts(pages):
    return [page.prompt + page.response for page in pages]


def everything(split) -> list[Problem]:
    size = sum(len(targets(numbers)) for numbers in number_sets(split))
    return WorldCountdown(split, size).problems()


def test_splits_share_no_numbers_and_leave_none_out():
    sets = [set(number_sets(split)) for split in SPLITS]
    assert sum(map(len, sets)) == len(set.union(*sets)) == 364
    assert all(list(n) == sorted(n) for n in set.union(*sets))


@pytest.mark.long
def test_corpus_asks_about_nothing_of_the_other_splits(texts):
    others = set(number_sets("train")) | set(number_sets("held_out"))
    asked = [tuple(map(int, m)) for text in texts for m in ASKED.findall(text)]
    assert len(asked) > 500
    assert not {tuple(sorted(numbers)) for *numbers, _ in asked} & others
    questions = {q for text in texts for q in CHAIN.findall(text)}
    assert len(questions) > 100
    for split in ("train", "held_out"):
        held = WorldChain(split, 500, chinese=0.5).problems()
        assert not questions & {p.question for p in held}


def test_chains_of_the_corpus_belong_to_it(texts):
    words = {word: operation for operation, both in chains.WORDS.items() for word in both}
    for asked in {q for text in texts for q in CHAIN.findall(text)}:
        start, *steps = asked.rstrip(".。").split(", ")
        chain = (int(re.search(r"\d+", start)[0]),
                 tuple((words[s.split()[0]], int(s.split()[1])) for s in steps))  # fmt: skip
        assert chains.split_of(chain) == "corpus"


@pytest.mark.parametrize("split", SPLITS)
def test_every_countdown_answer_passes_its_verifier(split):
    problems = everything(split)
    assert len({p.uid for p in problems}) == len(problems) > 300
    texts = [f"<think> x </think> <answer> {p.answer} </answer>" for p in problems]
    verdicts = CountdownVerifier().verify_batch(texts, problems)
    assert all(verdict.value == 1.0 for verdict in verdicts)
    for p in problems[::50]:
        *numbers, target = map(int, ASKED.fullmatch(p.question).groups())
        assert p.meta["numbers"] == numbers and p.meta["target"] == target
        assert p.meta["kind"] == "reasoning" and p.meta["language"] == "en"


def solutions(numbers: tuple[int, ...], target: int) -> set[tuple]:
    """Every way to reach the target, found without the search: as unordered pairs of steps."""
    found = set()
    for a, b, c in permutations(numbers):
        for one in OPERATE:
            first = OPERATE[one](max(a, b), min(a, b))
            if first != int(first) or not 1 <= first <= 99:
                continue
            for two in OPERATE:
                if OPERATE[two](max(first, c), min(first, c)) == target:
                    found.add((max(a, b), one, min(a, b), two, c))
    return found


def test_targets_have_exactly_one_solution():
    rng = np.random.default_rng(0)
    sets = [numbers for split in SPLITS for numbers in number_sets(split)]
    for index in rng.choice(len(sets), 60, replace=False):
        for target in targets(sets[index]):
            assert len(solutions(sets[index], target)) == 1, (sets[index], target)
            assert 10 <= target <= 99 and target not in sets[index]


def test_attempts_are_right_and_none_is_made_twice():
    rng = np.random.default_rng(1)
    sets = number_sets("corpus")
    for index in rng.choice(len(sets), 100, replace=False):
        order = SearchOrder(
            pairs=tuple(rng.permutation(3).tolist()), starts=tuple(rng.choice((0, 2), 3).tolist())
        )
        tried = branches(sets[index], order)
        attempts = [attempt for _, tries in tried for attempt in tries]
        assert len(set(attempts)) == len(attempts)
        for attempt in attempts:
            assert attempt.second == step(attempt.second.left, attempt.second.operation,
                                          attempt.second.right)  # fmt: skip
            assert eval(attempt.expression) == attempt.second.result
            used = sorted(map(int, re.findall(r"\d+", attempt.expression)))
            assert used == list(sets[index])


def test_a_patient_search_is_right_in_every_line_and_ends_at_the_target():
    rng = np.random.default_rng(2)
    pool = [(n, t) for n in number_sets("corpus") for t in targets(n)]
    for index in rng.choice(len(pool), 150, replace=False):
        numbers, target = pool[index]
        work = search(numbers, target, None, rng)
        assert eval(work.answer) == target
        equations = EQUATION.findall(work.thinking)
        assert len(equations) >= 2
        assert all(OPERATE[op](int(a), int(b)) == int(c) for a, op, b, c in equations)
        before, _, after = work.thinking.partition("yes")
        assert after and before.rstrip(" ,:").split("=")[-1].split()[0].strip(",.") == str(target)


def test_a_chain_s_answer_is_its_last_result():
    for split in SPLITS:
        problems = WorldChain(split, 200).problems()
        assert len({p.question for p in problems}) == 200
        for p in problems:
            start, *steps = re.findall(r"\d+", p.uid)
            value = int(start)
            for operation, operand in zip(re.findall(r"(?<=\d)[-+*/]", p.uid), steps, strict=True):
                value = OPERATE[operation](value, int(operand))
                assert value == int(value) and 1 <= value <= 99
            assert str(int(value)) == p.answer
            assert 4 <= len(steps) <= 8


def test_page_i_depends_on_the_seed_and_i_alone(pages):
    assert WorldCorpus(20, seed=0).documents() == pages[:20]
    assert WorldCorpus(20, seed=1).documents() != pages[:20]


def test_every_kind_of_page_is_there(pages, texts):
    shares = {
        "template": np.mean([bool(page.prompt) for page in pages]),
        "forum": np.mean([text.startswith("Q: ") for text in texts]),
        "quiz": np.mean([text.startswith("Question: ") for text in texts]),
        "table": np.mean([text.startswith("Table: ") for text in texts]),
        "talk": np.mean([text.startswith("User: ") for text in texts]),
    }
    assert all(share > 0.02 for share in shares.values()), shares


@pytest.mark.parametrize("source", [WorldCountdown, WorldChain])
def test_a_share_is_asked_in_chinese(source):
    asked = source("train", 100, chinese=0.3).problems()
    chinese = {p.uid for p in asked if p.meta["language"] == "zh"}
    assert 15 < len(chinese) < 45
    for p in asked:
        assert (p.uid in chinese) == bool(re.search(r"[一-鿿]", p.question))
    more = {
        p.uid for p in source("train", 100, chinese=0.6).problems() if p.meta["language"] == "zh"
    }
    assert chinese < more, "who is asked in Chinese stays so"
    english = source("train", 100).problems()
    assert [p.uid for p in english] == [p.uid for p in asked]
    with pytest.raises(ValueError, match=r"chinese: 1\.5"):
        source("train", 10, chinese=1.5)


@pytest.mark.parametrize("source", [WorldCountdown, WorldChain])
def test_a_share_is_asked_in_russian_and_nobody_else_is_asked_otherwise(source):
    before = {p.uid: p for p in source("train", 100, chinese=0.3).problems()}
    asked = source("train", 100, chinese=0.3, russian=0.4).problems()
    assert 25 < sum(p.meta["language"] == "ru" for p in asked) < 55
    for p in asked:
        if p.meta["language"] == "ru":
            assert re.search("[а-я]", p.question) and not re.search("[A-Za-z]", p.question)
            assert (p.answer, p.uid) == (before[p.uid].answer, before[p.uid].uid)
            assert before[p.uid].meta["language"] == "en"
        else:
            assert p.question == before[p.uid].question
    with pytest.raises(ValueError, match="chinese and russian"):
        source("train", 10, chinese=0.7, russian=0.4)


def test_russian_pages_stand_in_place_of_others():
    plain = [page.response for page in WorldCorpus(200).documents()]
    some = [page.response for page in WorldCorpus(200, russian=0.5).documents()]
    changed = [b for a, b in zip(plain, some, strict=True) if a != b]
    assert 70 < len(changed) < 130
    assert sum(bool(re.search("[А-я]", text)) for text in changed) > 0.7 * len(changed)
    assert russian.PHRASES.keys() == PHRASES.keys()


def test_russian_thinking_is_russian_and_mixed_is_in_between():
    shares = {}
    for mix in (0.0, 0.5):
        voice = Voice(language="ru", mix=mix)
        works = [
            search((3, 5, 7), 56, None, generator(0, "russian", i), voice).thinking
            for i in range(40)
        ]
        shares[mix] = [language_consistency(work, "ru") for work in works]
    assert set(shares[0.0]) == {1.0}
    assert 0.3 < np.mean(shares[0.5]) < 0.7


@pytest.mark.parametrize("source", [WorldCountdown, WorldChain])
def test_too_few_problems_are_refused(source):
    with pytest.raises(ValueError, match="num_problems: 0"):
        source("train", 0).problems()


def test_too_many_problems_are_refused():
    with pytest.raises(ValueError, match="num_problems: 1000000"):
        WorldCountdown("train", 1_000_000).problems()


def test_the_tokenizer_reads_back_what_it_wrote(texts, pages, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(MINI)
    ids = tokenizer(texts[:300])["input_ids"]
    assert all(row[0] == tokenizer.bos_token_id and row.count(row[0]) == 1 for row in ids)
    for row, text in zip(ids, texts, strict=False):
        assert tokenizer.decode(row, skip_special_tokens=True) == text
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((MINI / "config.json").read_text())
    assert AutoTokenizer.from_pretrained(tmp_path)(texts[:300])["input_ids"] == ids
    numbers = tokenizer("".join(f" {n}" for n in range(100)), add_special_tokens=False)
    assert len(numbers["input_ids"]) == 100, "each number is one token"
    asked = [render("small_world", p.question) for p in WorldCountdown("held_out", 5).problems()]
    prompts = encode_prompts(tokenizer, asked)
    documents = encode_documents(tokenizer, pages[:50])
    starts = {p[0] for p in prompts} | {int(d.tokens[0]) for d in documents}
    assert starts == {tokenizer.bos_token_id}
    assert {int(d.tokens[-1]) for d in documents} == {tokenizer.eos_token_id}


@pytest.mark.long
def test_a_share_of_patient_authors_is_what_is_asked_for():
    gives_up = re.compile("I give up|我放弃")
    shares = {}
    for patient in (0.0, 0.5, 1.0):
        pages = WorldCorpus(1500, seed=0, patient=patient).documents()
        searches = [p.response for p in pages if p.prompt and "<think>" in p.response]
        guessed = sum("=" not in text for text in searches)  # effort 0, and requests
        shares[patient] = (sum(bool(gives_up.search(t)) for t in searches), guessed, len(searches))
    assert shares[1.0][0] == 0 and shares[0.0][0] > 0.5 * shares[0.0][2]
    assert abs(shares[0.5][0] / shares[0.0][0] - 0.5) < 0.1
    with pytest.raises(ValueError, match=r"patient: 1\.5 is not between 0 and 1"):
        WorldCorpus(10, patient=1.5)


def test_chains_of_one_step_are_few_and_say_so():
    problems = WorldChain("held_out", 40, min_steps=1, max_steps=1).problems()
    assert len({p.uid for p in problems}) == 40
    assert all(p.question.count(",") == 1 for p in problems)
    asked = {p.question for p in WorldChain("train", 40, min_steps=1, max_steps=1).problems()}
    assert not asked & {p.question for p in problems}
    with pytest.raises(ValueError, match=r"num_problems: 300 .* chains of 1 to 1 steps"):
        WorldChain("held_out", 300, min_steps=1, max_steps=1).problems()
    with pytest.raises(ValueError, match="max_steps"):
        WorldChain("held_out", 4, min_steps=3, max_steps=2)
