"""How the time to read a response grows with its length, for everything that reads one.

Run as a script it takes names of readers, one a line, and a limit in seconds of CPU time, and times
each in a process forked from its own: a hang must not be the suite's.
"""

from __future__ import annotations

import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from r1lit.batches import Problem, Response, Verdict
from r1lit.metrics.language import language_consistency, language_of
from r1lit.metrics.reflection import count_reflection_words
from r1lit.metrics.words import count_words, prose
from r1lit.rewards import (
    Format,
    LanguageConsistency,
    Repetition,
    SpecialTokenFormat,
)
from r1lit.text import extract, notation, scored_text, units
from r1lit.text.json_answer import json_answer
from r1lit.text.scored_text import step_ends
from r1lit.verifiers import DefaultVerifiers, GenerativeVerifier, MathVerifier
from r1lit.verifiers.code import find_code, program_files
from r1lit.verifiers.generative import read_label, read_verdict
from r1lit.verifiers.last_expression import last_expression
from r1lit.verifiers.logic import NAMES
from r1lit.verifiers.pool import ItemReply

LONG, MIDDLE, SHORT, BRIEF = 25_000, 6_000, 1_900, 380  # beyond most limits on an answer, or within
FREE_S = 0.05  # what is faster needs no second look: a quadratic pattern takes 0.1 s at MIDDLE
MAX_RATIO = 10.0  # of the times at four lengths and one: 4 if linear, 16 if quadratic

SINGLE = (
    "`", "~", "{", "}", "\\", "$", " ", "\t", "\n", "\r", "1", ".", ",", ";", ":", "(", ")",
    "[", "]", "<", ">", "-", "−", "*", "_", "^", "/", "=", "|", "#", "&", "%", "?", "!", "'", '"',
    "a", "A", "é", "汉", "。", "，", "²", "½", "√", "π", "\u200b", "\u0301", "\x00", "\ud800",
    "<think>", "</think>", "<answer>", "</answer>", "\\boxed{", "\\text{", "\\frac{", "\\(", "\\[",
    "```", "~~~", "$$", "**", "or ", "and ", "is ", "not ", "be ", "answer", "the answer is ",
    "Answer: ", "答案是", "或", "(A) ", "A. ", "Ann is a knight ", "Ann: ", "1 ", "1,", "#### ",
    "\\quad", "\\left", "http://", "a@", "a_", "wait ", "LABEL: ", "the ",
)  # fmt: skip
"""What some reader treats specially; runs of each are fed to every reader."""

PAIRED = (
    "`", "~", "{", "}", "\\", "$", " ", "\n", "1", ".", ",", "(", ")", "[", "]", "-", "*", "=", ":",
    "a", "汉", "²", "√", "<think>", "</think>", "<answer>", "\\boxed{", "\\text{", "or", "is",
    "and", "answer", "答案是", "A", "|",
)  # fmt: skip
AROUND = (
    "{}",
    "<answer>{}</answer>",
    "\\boxed{{{}}}",
    "The answer is {}",
    "```python\n{}\n```",
    "<think>{}</think>x",
)
ENDS = ("", "!", "`", "}", "x", " ", "</answer>")


class Unasked:
    """Stands where the worker processes are: they can be killed, so their time is not counted."""

    def run(self, requests: list[dict[str, object]]) -> list[ItemReply]:
        """Answer every request with an error, at once."""
        content = {"status": "error", "canonical": None, "reason": "not asked"}
        return [ItemReply(content=content, seconds=0.0) for _ in requests]


PROBLEMS = {
    "choice": {"answer": "C", "meta": {"choices": ["4", "5", "Paris", "a dog"]}},
    "countdown": {"answer": "", "meta": {"numbers": [3, 5, 7], "target": 56}},
    "exact": {"answer": "The Beatles"},
    "function_call": {
        "answer": "",
        "meta": {
            "function": [
                {
                    "name": "f",
                    "parameters": {"type": "dict", "properties": {"x": {"type": "integer"}}},
                }
            ],
            "ground_truth": [{"f": {"x": [1]}}],
        },
    },
    "functional_code": {"answer": "", "meta": {"tests": ["assert f(1) == 2"]}},
    "game24": {"answer": "", "meta": {"numbers": "4 9 10 13"}},
    "ifeval_strict": {
        "answer": "",
        "meta": {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]},
    },
    "json_schema": {"answer": "", "meta": {"schema": {"type": "object"}}},
    "logic": {
        "answer": "",
        "meta": {"names": NAMES[:2], "statements": [["knave", 1], ["same", 0, 1]]},
    },
    "math": {"answer": "72"},
    "none": {"answer": ""},
    "repository": {
        "answer": "",
        "meta": {
            "repository": str(Path(__file__).parent / "pairs"),
            "fail_to_pass": ["a.py::test_a"],
            "pass_to_pass": [],
            "calls": {"packages": [], "functions": [{"module": "a", "name": "a", "calls": [1]}]},
        },
    },
    "stdin_code": {"answer": "", "meta": {"tests": {"inputs": ["1"], "outputs": ["2"]}}},
}


def problem_of(name: str) -> Problem:
    """Return a problem for the verifier of this name."""
    fields = PROBLEMS[name.replace("loose", "strict")]
    return Problem(uid=name, question="What is it?", source="t", verifier=name, **fields)


def readers() -> dict[str, Callable[[str], object]]:
    """Return by name everything in these rooms that is given what a model wrote."""
    found: dict[str, Callable[[str], object]] = {}
    verifiers = DefaultVerifiers()
    del verifiers["reasoning_gym"]  # its scorers are another package's, which may be absent
    verifiers["math, last expression"] = MathVerifier(last_expression=True)
    for name, verifier in verifiers.items():
        if hasattr(verifier, "pool"):
            verifier.pool = Unasked()
        problem = problem_of(name.partition(",")[0])
        found[f"verifier {name}"] = lambda text, v=verifier, p=problem: v.verify(text, p)
    words = Problem(uid="", question="", answer=r"\text{east}", source="")
    math = verifiers["math"]
    found["verifier math, gold in words"] = lambda text: math.verify(text, words)
    judge = GenerativeVerifier(lambda prompt: "VERDICT: CORRECT", num_threads=1)
    found["verifier generative"] = lambda text: judge.verify(text, problem_of("math"))
    found["judge's verdict"] = lambda text: read_verdict(text, "f00d")
    found["judge's label"] = lambda text: read_label(text, "f00d")
    for reward in (
        Format(), Format(answer_tags=False), Format(think_prefilled=True), SpecialTokenFormat(),
        LanguageConsistency("en"), LanguageConsistency("zh"), LanguageConsistency("ja"),
        LanguageConsistency("en", same_script=True), LanguageConsistency(think_prefilled=True),
        Repetition(), Repetition(n=1),
    ):  # fmt: skip
        options = ", ".join(f"{key} {value}" for key, value in vars(reward).items())
        key = f"reward {reward.name}, {options}"
        found[key] = lambda text, r=reward: r([response_of(text)])
    found |= {
        "find_code": find_code,
        "thinking_and_answer": extract.thinking_and_answer,
        "extract_answer": extract.extract_answer,
        "extract_final": extract.extract_final,
        "final_or_answer_part": extract.final_or_answer_part,
        "json_answer": json_answer,
        "taken_back": lambda text: extract.taken_back(text, 0),
        "scored_part": lambda text: scored_text.scored_part(text, "summary", think_prefilled=True),
        "last_expression": last_expression,
        "program_files": lambda text: program_files(text, "def f(x):\n", "f"),
        "prose": prose,
        "count_words": lambda text: count_words(text, symbols_are_words=False),
        "language_consistency": lambda text: language_consistency(text, "zh"),
        "language_of": language_of,
        "count_reflection_words": count_reflection_words,
        "cut_steps": lambda text: scored_text.cut_steps(text, ["\n\n", "\n", ". "]),
        "step_ends": lambda text: step_ends(text, ["\n\n", "\n", ". "]),
    }
    # their callers hand these no more than an answer may have
    for function in (
        notation.plain_signs, notation.plain_answer, notation.without_lead, notation.words_of,
        notation.side_by_side, notation.label_and_value, notation.without_looks, units.is_unit,
        units.without_units, units.without_symbol, units.without_long_symbol,
        units.unmarked, units.measure_of, notation.only_number, notation.spelled_number,
    ):  # fmt: skip
        found[function.__name__] = lambda text, f=function: f(text[: SHORT + 50])
    found["other_words"] = lambda text: notation.other_words(text[: SHORT + 50], text[:400])
    found["other_measure"] = lambda text: units.other_measure(text[: SHORT + 50], text[:400])
    return found


def response_of(text: str) -> Response:
    """Return a response with this text."""
    verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
    return Response(
        text=text, problem=problem_of("math"), verdict=verdict, num_tokens=9, finished=True
    )


def cases(thorough: bool) -> Iterator[tuple[str, str, str, int]]:
    """Yield unit, what stands around the run, its end, and the length of the run.

    The costly ones are tried with one end after another; with ``thorough`` with all of them.
    """
    for at, (unit, around) in enumerate(product(SINGLE, AROUND)):
        for end in ENDS if thorough else (ENDS[at % len(ENDS)],):
            yield unit, around, end, LONG
        for end in ENDS if around in AROUND[:2] else ENDS[:2]:
            yield unit, around, end, MIDDLE
            yield unit, around, end, BRIEF
    units = [one + other for one, other in product(PAIRED, PAIRED) if one != other]
    units += [one + "  " for one in PAIRED]
    for at, unit in enumerate(units):
        around, end = AROUND[at % len(AROUND)], ENDS[at // 3 % len(ENDS)]
        yield unit, around, end, SHORT
        yield from ((unit, *rest, BRIEF) for rest in product(AROUND[:2], ENDS))
        if thorough:
            yield from ((unit, *rest) for rest in product(AROUND, ENDS, (SHORT, MIDDLE)))


def seconds(read: Callable[[str], object], text: str) -> float:
    """Return the CPU time of this process for one reading, the lesser of two if it is long."""
    times = []
    while len(times) < 2:
        start = time.process_time()
        read(text)
        times.append(time.process_time() - start)
        if times[0] < FREE_S:
            break
    return min(times)


def time_reader(name: str, thorough: bool = False) -> None:
    """Time one reader in every case.

    Every case is printed before it is timed, so that the last line names the one that hung. The
    last line is ``slow …`` behind the first case whose time grows faster than its length, else
    ``fine``.
    """
    read = (readers() | BAD)[name]
    for case in cases(thorough):
        print(ascii(case), flush=True)
        ratio = growth(read, *case)
        if ratio > MAX_RATIO:
            print(f"slow: {ratio:.1f} times for 4 times the length", flush=True)
            return
    print("fine", flush=True)


def growth(read: Callable[[str], object], unit: str, around: str, end: str, length: int) -> float:
    """Return how many times longer a run of four times the length takes, 0 if neither is long."""

    def made(size: int) -> str:
        return around.format(unit * max(1, size // len(unit)) + end)

    seconds(read, "<answer> what is made at the first call </answer>")
    here = seconds(read, made(length))
    if here <= FREE_S:
        return 0.0
    if length == LONG:
        return seconds(read, made(4 * length)) / here
    return here / max(seconds(read, made(length // 4)), 0.005)  # a longer one may be refused


BAD = {
    "quadratic": re.compile(r"[`~]+$", re.MULTILINE).search,
    "exponential": re.compile(r"(?:~|~)*!").fullmatch,
}
"""Readers that must be found out."""


def main() -> None:
    """Time the readers that standard input names; ``over`` ends what is printed of each."""
    for line in sys.stdin:
        limit_s, name = line.strip().split(" ", 1)
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))
            time_reader(name, thorough="thorough" in sys.argv)
            os._exit(0)
        os.waitpid(child, 0)
        print("over", flush=True)


if __name__ == "__main__":
    main()
