"""Programs and puzzles: one right answer each, splits that do not touch, and pages about them."""

from __future__ import annotations

import hashlib
import re
from itertools import permutations, product

import pytest

from r1lit.seeding import generator
from r1lit.verifiers import LogicVerifier
from r1lit.worlds import WorldCorpus, WorldGrader, WorldPrograms, WorldPuzzles, programs, puzzles
from r1lit.worlds.language import NAMES, Voice
from r1lit.worlds.reasoning import develop, guess, solve

SPLITS = ("corpus", "train", "held_out")
SOURCES = (WorldPrograms, WorldPuzzles)
EQUATION = re.compile(r"\d+ [-+*] \d+ = \d+")
DEFAULT = "524003e8ac47cdd2"
ENGLISH = {pair[0] for pair in NAMES}


@pytest.fixture(scope="module")
def pages():
    return [d.prompt + d.response for d in WorldCorpus(1200, programs=0.4, puzzles=0.4).documents()]


def runs(code: str, test: str) -> bool:
    """Decide as the sandbox does, in this process: our own programs are no danger."""
    space: dict = {}
    exec(code, space)
    try:
        exec(test, space)
    except AssertionError:
        return False
    return True


def says(statement, knights) -> bool:
    """What a statement means, written down once more."""
    kind, *places = statement
    if kind == "number":
        return sum(knights) == places[0]
    if kind == "same":
        return len({knights[i] for i in places}) == 1
    return knights[places[0]] is (kind == "knight")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("chinese", [0.0, 1.0])
def test_exactly_one_answer_to_a_puzzle_is_right(split, chinese):
    verifier = LogicVerifier()
    problems = WorldPuzzles(split, 40, chinese=chinese).problems()
    assert {len(p.meta["names"]) for p in problems} == {3, 4}
    for p in problems:
        names, statements = p.meta["names"], p.meta["statements"]
        fitting = []
        for knights in product((True, False), repeat=len(names)):
            text = puzzles.answer(knights, names, p.meta["language"])
            verdict = verifier.verify(f"<think> {p.answer} </think> <answer> {text} </answer>", p)
            fits = all(
                says(s, knights) is knight for s, knight in zip(statements, knights, strict=True)
            )
            assert verdict.status == ("right" if fits else "wrong")
            fitting += [text] * fits
        assert fitting == [p.answer]
        assert bool(re.search(r"[一-鿿]", p.question + p.answer)) == bool(chinese)


def told_by_others(puzzle):
    """The same puzzle with its people in every order."""
    for order in permutations(range(len(puzzle))):
        new = {old: place for place, old in enumerate(order)}
        yield tuple(
            (kind, *(places if kind == "number" else sorted(new[i] for i in places)))
            for kind, *places in (puzzle[old] for old in order)
        )


def test_a_puzzle_belongs_to_one_split_whoever_is_told_first():
    for i in range(30):
        puzzle = puzzles.draw(generator(0, "any", i), 3 + i % 2)
        assert len({puzzles.split_of(other) for other in told_by_others(puzzle)}) == 1


@pytest.mark.parametrize("split", SPLITS)
def test_a_program_passes_its_test_and_a_mistaken_one_does_not(split):
    problems = WorldPrograms(split, 120).problems()
    rng = generator(0, "mistakes")
    drawn = [programs.draw_from(split, rng) for _ in range(120)]
    assert {p.meta["form"] for p in problems} == {form for form, _ in programs.FORMS}
    for p in problems:
        assert runs(p.answer.strip("`\n"), p.meta["tests"][0])
    for program in drawn:
        assert runs(program.code, program.test)
        assert programs.split_of(program.code) == split
        other = guess(program, rng)
        same = [other.of(x) for x in programs.TESTED] == [program.of(x) for x in programs.TESTED]
        assert programs.split_of(other.code) == "corpus"
        if other.form != "each":
            assert runs(other.code, program.test) == same


def test_two_examples_leave_one_program():
    rng = generator(0, "examples")
    drawn = [p for p in (programs.draw(rng) for _ in range(200)) if p.form == "examples"]
    for program in drawn:
        first, second, third = program.given
        found = [
            (factor, more)
            for factor in range(1, 13)
            for more in range(-99, 100)
            if factor * first + more == program.of(first)
            and factor * second + more == program.of(second)
        ]
        assert len(found) == 1 and found[0][0] * third + found[0][1] == program.of(third)
        assert all(1 <= program.of(x) <= 99 for x in program.given)


def test_the_sandbox_grades_programs_by_their_kind_and_runs_none_twice(monkeypatch):
    problems = [*WorldPrograms("held_out", 6, chinese=0.5).problems(),
                *WorldPuzzles("held_out", 2).problems()]  # fmt: skip
    grader = WorldGrader()
    requests = []
    run = grader.verifiers["functional_code"].pool.run
    monkeypatch.setattr(grader.verifiers["functional_code"].pool, "run",
                        lambda given: requests.extend(given) or run(given))  # fmt: skip
    right = [f"<think> x </think> <answer> {p.answer} </answer>" for p in problems]
    summary = [f"<think> x </think> The answer is <answer> {p.answer} </answer>." for p in problems]
    bare = [f"<think> {p.answer} </think> <answer> 7 </answer>" for p in problems]
    wrong = ["<answer> ```\ndef f(x): return 0\n``` </answer>"] * 6
    try:
        for texts, status in ((right, "right"), (summary, "right"), (bare, "unparsed")):
            assert {v.status for v in grader.verdicts(texts, problems)} == {status}
        assert {v.status for v in grader.verdicts(wrong * 4, problems[:6] * 4)} == {"wrong"}
    finally:
        grader.close()
    assert len(requests) == 6 + 6, "each program once"


@pytest.mark.parametrize("family", ["programs", "puzzles"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_patience_finds_the_answer_and_every_equation_is_right(family, language):
    attempts = []
    for i in range(60):
        rng, voice = generator(1, family, i), Voice(language=language, careful=True)
        if family == "programs":
            program = programs.draw_from("corpus", rng)
            work, right = develop(program, None, rng, voice), program.answer
            attempts.append(work.thinking.count(": ") if program.form == "examples" else 1)
        else:
            puzzle = puzzles.draw_from("corpus", rng)
            names = puzzles.draw_names(rng, puzzle, language)
            work = solve(puzzle, names, None, rng, voice)
            (knights,) = puzzles.solutions(puzzle)
            right = puzzles.answer(knights, names, language)
            attempts.append(len(re.findall("contradiction|矛盾", work.thinking)) + 1)
            assert len(re.findall("yes|对了", work.thinking)) == 1
        assert work.answer == right
        assert all(eval(e.replace("=", "==")) for e in EQUATION.findall(work.thinking))
    assert max(attempts) >= 6 and min(attempts) == 1


def test_pages_show_no_program_and_no_puzzle_of_another_split(pages):
    shown = {line for page in pages for line in page.splitlines() if line.startswith("def f(")}
    assert len(shown) > 300
    assert {programs.split_of(code) for code in shown} == {"corpus"}
    told = re.compile(r"(\w+) says: ([^.]+)\.")
    seen = 0
    for page in pages:
        for asked in re.findall(r"((?:\w+ says: [^.]+\. )+)Who is a knight", page):
            names, said = zip(*told.findall(asked), strict=True)
            statements = []
            for words in said:
                places = [names.index(w) for w in words.split() if w in ENGLISH]
                number = re.search(r"\d", words)
                kind = "same" if "alike" in words else words.split()[-1]
                statements.append(("number", int(number[0])) if number else (kind, *sorted(places)))
            assert puzzles.split_of(tuple(statements)) == "corpus"
            seen += 1
    assert seen > 200


def test_pages_are_of_every_kind_and_most_people_give_up_in_the_template(pages):
    about = [p for p in pages if "f(x)" in p or "f(v)" in p or " says: " in p or "说: " in p]
    assert 0.7 < len(about) / len(pages) < 0.9
    forum = [p for p in about if p.startswith("Q: ")]
    template = [p for p in about if "<think>" in p]
    assert min(len(forum), len(template)) > 300
    gives_up = re.compile("give up|I guess|放弃|我猜|<think> </think>")
    assert sum(map(bool, map(gives_up.search, template))) > 0.4 * len(template)
    assert sum(map(bool, map(gives_up.search, forum))) < 0.4 * len(forum)


def test_the_default_pages_are_the_same_to_the_byte():
    plain = WorldCorpus(300).documents()
    digest = hashlib.sha256("".join(d.prompt + d.response for d in plain).encode()).hexdigest()
    assert digest[:16] == DEFAULT
    some = WorldCorpus(300, programs=0.1, puzzles=0.1).documents()
    kept = [a == b for a, b in zip(plain, some, strict=True)]
    assert 0.7 < sum(kept) / len(kept) < 0.9
    with pytest.raises(ValueError, match="programs and puzzles"):
        WorldCorpus(10, programs=0.6, puzzles=0.6)


@pytest.mark.parametrize("source", SOURCES)
def test_problems_are_distinct_the_same_again_and_of_disjoint_splits(source):
    found = {split: source(split, 60, chinese=0.3).problems() for split in SPLITS}
    uids = [{p.uid for p in of} for of in found.values()]
    assert [len(of) for of in uids] == [60, 60, 60] and len(set.union(*uids)) == 180
    assert source("train", 60, chinese=0.3).problems() == found["train"]
    assert 5 < sum(p.meta["language"] == "zh" for p in found["train"]) < 35
    assert all(p.meta["kind"] == "reasoning" for p in found["train"])
    with pytest.raises(ValueError, match="num_problems: 0"):
        source("train", 0)


@pytest.mark.long
def test_puzzles_of_a_size_are_refused_when_there_are_too_few():
    assert {len(p.meta["names"]) for p in WorldPuzzles("train", 20, num_people=4).problems()} == {4}
    with pytest.raises(ValueError, match="num_people: 5"):
        WorldPuzzles("train", 10, num_people=5)
    with pytest.raises(ValueError, match="num_problems: 200"):
        WorldPuzzles("held_out", 200, num_people=3).problems()
