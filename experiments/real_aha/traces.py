"""Searches on a real model: the problems, and the documents that prime it for RL.

    python -m experiments.real_aha.traces          # what the documents cost in tokens

A problem is one of the small world's searches with three numbers (`r1lit.worlds`), in the same
order and with the same levels, so that both curves can be read side by side. Its trace writes each
first step once and then its completions, all with exact values: `9-4=5,3 left:5+3=8,5-3=2`. There
are no spaces around operators, since SmolLM2 splits numbers into digits and would spend a token on
each space. An attempt costs 11.4 of its tokens in the median; one with larger numbers costs more.

Authors of traces give up early. They plant a give-up probability that RL can lower. Documents about
problems use the corpus split alone, so no number set is both in a document and in RL or evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, count, cycle, islice
from statistics import mean, median
from typing import Literal, get_args

import numpy as np
from transformers import PreTrainedTokenizerBase

from experiments.launch import command_line, reported
from r1lit.batches import Problem
from r1lit.data.sources import Document, DocumentSource, ProblemSource
from r1lit.errors import check_at_least, check_one_of
from r1lit.policy import load_tokenizer
from r1lit.seeding import generator, permutation
from r1lit.text.prompts import CHAT, prompt_text
from r1lit.worlds.countdown import MAX_NUMBER, MIN_TARGET, Operation, number_sets
from r1lit.worlds.search_corpus import (
    LEVELS,
    Place,
    SearchProblem,
    fact,
    level_of,
    needed_attempts,
    places,
    question,
    search_problems,
)
from r1lit.worlds.splits import Split, check_split

MODEL = "runs/real_model/SmolLM2-135M-Instruct"
MAX_ATTEMPTS = 23
"""The most attempts that a problem of this study needs: its fourth level ends there."""
GO_ON = (0.825, 0.675)
"""Beta distribution of the authors' probability to continue after a failure: a mean of 0.55.

It is wider than the small world's (11, 9), so that gate 1 has room for what sampling adds
(`experiments.real_aha.authors`)."""
UNSEEN = range(MAX_NUMBER + 1, 21)
"""Numbers of `UnseenNumbers`."""
GIVE_UP = " I"
"""The token that begins giving up, and nothing else in a trace: what a ban at decoding names."""
SO_FAR = "\nSo far: "
ARITHMETIC = "Arithmetic: "
ARITHMETIC_SHARE = 0.1
FACTS_PER_LINE = 12
FILLER = "we look at all of the numbers and think about what they could make here and then"
Arm = Literal["search", "filler", "direct", "wrong", "solved"]
Count = Callable[[str], int]


def counted_by(tokenizer: PreTrainedTokenizerBase) -> Count:
    """Return the function that counts a text's tokens."""
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def wording(numbers: tuple[int, ...], target: int) -> str:
    """Return a problem in words.

    >>> wording((3, 4, 9), 63)
    'Using 3, 4 and 9, make 63. Use each number once.'
    >>> wording((3, 4, 9, 2), 63)
    'Using three of 3, 4, 9 and 2, make 63. Use each number once.'
    """
    return f"{question(numbers, target)} Use each number once."


class Searches(ProblemSource):
    """The small world's searches in this study's words, as many of each level.

    ``meta["kind"]`` is the level, ``meta["attempts"]`` what the problem needs.

    Args:
        split: corpus, train or held_out; the split of the small world's problems.
        num_problems: how many; all levels share them alike.
        seed: of the sample, and of the order of each problem's numbers.
        min_attempts: leaves out problems that need fewer.
        max_attempts: leaves out problems that need more.
        max_number: leaves out sets with a larger number, 12 at most.
        num_numbers: 3, or 4 of which three are used.
    """

    def __init__(
        self,
        split: Split,
        num_problems: int,
        seed: int = 0,
        min_attempts: int = 1,
        max_attempts: int = MAX_ATTEMPTS,
        max_number: int = MAX_NUMBER,
        num_numbers: int = 3,
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        check_at_least("min_attempts", min_attempts, 1)
        check_at_least("max_attempts", max_attempts, min_attempts)
        check_one_of("num_numbers", str(num_numbers), ("3", "4"))
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.min_attempts = min_attempts
        self.max_attempts = max_attempts
        self.max_number = max_number
        self.num_numbers = num_numbers

    def problems(self) -> list[Problem]:
        """Return the problems, level after level in turn, without repetition.

        Raises:
            ValueError: if a level has too few.
        """
        levels: dict[str, list[SearchProblem]] = {}
        for found in self.searches():
            if self._fits(found):
                levels.setdefault(level_of(found.attempts), []).append(found)
        most = min(map(len, levels.values()), default=0) * len(levels)
        if self.num_problems > most:
            raise ValueError(
                f"num_problems: {self.num_problems} is more than {most}, since a level of split"
                f" {self.split!r} with numbers to {self.max_number} has"
                f" {most // max(1, len(levels))} problems"
            )
        in_turn = [
            [own[i] for i in permutation(len(own), self.seed, "real_aha", self.split, name)]
            for name, own in sorted(levels.items(), key=lambda level: level[1][0].attempts)
        ]
        return [
            problem_of(in_turn[i % len(in_turn)][i // len(in_turn)])
            for i in range(self.num_problems)
        ]

    def searches(self) -> Iterable[SearchProblem]:
        """Return every search of the split, of any level."""
        return search_problems(self.split, self.num_numbers, self.seed)

    def _fits(self, found: SearchProblem) -> bool:
        is_small = max(found.numbers) <= self.max_number
        return is_small and self.min_attempts <= found.attempts <= self.max_attempts


class UnseenNumbers(Searches):
    """Searches with three numbers from 13 to 20, which stand in no document and in no RL problem.

    Results are to 99 as everywhere, so products are rarer and searches shorter.

    Args:
        num_problems: how many; all levels share them alike.
        seed: of the sample, and of the order of each problem's numbers.
        min_attempts: leaves out problems that need fewer.
    """

    def __init__(self, num_problems: int, seed: int = 0, min_attempts: int = 1) -> None:
        super().__init__("held_out", num_problems, seed, min_attempts, max_number=UNSEEN[-1])

    def searches(self) -> Iterable[SearchProblem]:
        """Yield every search of such numbers, each set in one random order."""
        for numbers in combinations_with_replacement(UNSEEN, 3):
            order = generator(self.seed, "real_aha unseen", *numbers).permutation(3)
            shown = tuple(numbers[i] for i in order)
            for target, attempts in needed_attempts(places(shown)).items():
                if target >= MIN_TARGET and target not in numbers:
                    yield SearchProblem(numbers=shown, target=target, attempts=attempts)


def problem_of(found: SearchProblem) -> Problem:
    """Return a search problem as this study asks it."""
    numbers = "-".join(map(str, found.numbers))
    return Problem(
        uid=f"real-aha-{numbers}-{found.target}-at-{found.attempts}",
        question=wording(found.numbers, found.target),
        answer=expression(places(found.numbers)[found.attempts - 1]),
        source="search",
        verifier="countdown",
        meta={
            "numbers": list(found.numbers),
            "num_used": 3,
            "target": found.target,
            "attempts": found.attempts,
            "kind": level_of(found.attempts),
        },
    )


def plain(operation: Operation) -> str:
    """Return an operation without spaces: ``9-4=5``."""
    return str(operation).replace(" ", "")


def expression(place: Place) -> str:
    """Return an attempt as an expression without spaces: ``9*(4+3)``."""
    return place.attempt.expression.replace(" ", "")


def opens(search: Sequence[Place], at: int) -> bool:
    """Return whether attempt ``at`` is the first one after its first step."""
    return at == 0 or not search[at].same_branch(search[at - 1])


def separator(search: Sequence[Place], at: int) -> str:
    """Return the mark before attempt ``at``: a full stop before another first step."""
    return "." if at >= len(search) or opens(search, at) else ","


def written(search: Sequence[Place], start: int, stop: int) -> str:
    """Return attempts ``start`` to ``stop``, that one left out, as an author writes them.

    >>> written(places((9, 4, 3)), 3, 7)
    '9-4=5,3 left:5+3=8,5-3=2,5*3=15. 9*4=36,3 left:36+3=39'
    """
    text = ""
    for at in range(start, stop):
        if at > start:
            text += ". " if opens(search, at) else ","
        if opens(search, at):
            text += f"{plain(search[at].attempt.first)},{search[at].left_over} left:"
        text += plain(search[at].attempt.second)
    return text


def answered(place: Place) -> str:
    r"""Return the check of an attempt and the answer.

    >>> answered(places((3, 4, 9))[2])
    'Check: 9*(4+3)=9*7=63.\n<answer>9*(4+3)</answer>'
    """
    own = expression(place)
    return f"Check: {own}={plain(place.attempt.second)}.\n<answer>{own}</answer>"


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One author's work: the search in the user's turn, the own one, and how it ends.

    ``mark`` stands after ``so_far``. ``ending`` begins with the mark after the own search, or with
    none if there is no search.
    """

    numbers: tuple[int, ...]
    target: int
    start: int
    so_far: str
    mark: str
    own: str
    ending: str

    def document(self) -> Document:
        """Return the trace as a document in the model's chat template."""
        asked = wording(self.numbers, self.target)
        asked += f"{SO_FAR}{self.so_far}{self.mark}" if self.so_far else ""
        return Document(prompt=asked, response=f"{self.own}{self.ending}", chat=True)


def trace(rng: np.random.Generator, sets: Sequence[tuple[int, ...]], arm: Arm) -> Trace:
    """Write one author's trace of a problem of any level, half of them continuations."""
    continues = arm != "direct" and rng.random() < 0.5
    least = continues + 1 + (arm == "wrong")
    numbers, search, target, needed = draw(rng, sets, least)
    start = int(rng.integers(1, needed - (arm == "wrong"))) if continues else 0
    stop = needed if arm == "solved" else stops_at(rng, start, needed)
    at = needed - 1  # of what is answered; None gave up
    solved = stop == needed
    if arm == "direct":
        start = stop = 0
    elif arm == "wrong" and solved:
        stop = needed - 1
        at = min(range(start, stop), key=lambda i: abs(search[i].attempt.second.result - target))
    mark = separator(search, stop)
    if arm == "direct":
        ending = answered(search[at])
    else:
        ending = f". {answered(search[at])}" if solved else f"{mark}{GIVE_UP} give up."
    return Trace(
        numbers=numbers,
        target=target,
        start=start,
        so_far=written(search, 0, start),
        mark=separator(search, start),
        own=written(search, start, stop),
        ending=ending,
    )


def stops_at(
    rng: np.random.Generator, start: int, needed: int, go_on: tuple[float, float] = GO_ON
) -> int:
    """Return the attempts after which an author of a new give-up probability ends.

    Args:
        rng: of the author.
        start: attempts that are there; the author makes at least one more.
        needed: attempts that solve the problem.
        go_on: Beta distribution of the probability to continue after a failure.
    """
    probability, stop = float(rng.beta(*go_on)), start + 1
    while stop < needed and rng.random() < probability:
        stop += 1
    return stop


def draw(
    rng: np.random.Generator, sets: Sequence[tuple[int, ...]], least: int
) -> tuple[tuple[int, ...], list[Place], int, int]:
    """Draw numbers in an order, their search, a target of any level, and what it needs.

    Args:
        rng: of the problem.
        sets: of three numbers.
        least: attempts that the problem must need.
    """
    levels = [level for level in LEVELS if level[1] <= MAX_ATTEMPTS and level[1] >= least]
    while True:
        numbers = tuple(int(n) for n in rng.permutation(sets[int(rng.integers(len(sets)))]))
        search, attempts = _searched(numbers)
        low, high = levels[int(rng.integers(len(levels)))]
        fitting = [
            (target, needed)
            for target, needed in attempts.items()
            if max(low, least) <= needed <= high and target >= MIN_TARGET and target not in numbers
        ]
        if fitting:
            target, needed = fitting[int(rng.integers(len(fitting)))]
            return numbers, search, target, needed


@cache
def _searched(numbers: tuple[int, ...]) -> tuple[list[Place], dict[int, int]]:
    search = places(numbers)
    return search, needed_attempts(search)


def filler(text: str, num_tokens: Count) -> str:
    """Return words of as many tokens as ``text``, up to a word; empty for no text."""
    wanted = num_tokens(text)
    found = " ".join(islice(cycle(FILLER.split()), wanted))
    while num_tokens(found) > wanted:  # a word of several tokens
        found = found.rpartition(" ")[0]
    return found


def filled(own: Trace, num_tokens: Count) -> Trace:
    """Return a trace with filler of the same length in place of both searches."""
    so_far, mine = (filler(text, num_tokens) for text in (own.so_far, own.own))
    return replace(own, so_far=so_far, own=mine)


def arithmetic(rng: np.random.Generator) -> Document:
    """Write a line of arithmetic facts, exact, as traces write them."""
    facts = ", ".join(plain(fact(rng)) for _ in range(FACTS_PER_LINE))
    return Document(prompt="", response=f"{ARITHMETIC}{facts}.")


class PrimingDocuments(DocumentSource):
    """Documents of one arm: responses, continuations, and the same arithmetic lines in every arm.

    Arms of equal ``num_tokens`` have equal tokens in their responses, up to one document, and the
    same arithmetic lines. Tokens of prompts do not count: no loss is on them.

    Args:
        arm: ``search``; ``filler`` of the same length in place of the search; ``direct``, the
            solution alone; ``wrong``, searches cut before the solution, with the nearest attempt
            as the answer; ``solved``, searches whose authors never give up.
        num_tokens: of responses, each with its end-of-sequence token; about.
        num_documents: the most documents, if that is fewer.
        seed: of every document.
        split: of the number sets: the corpus's to prime; held_out to measure the loss alone.
        max_number: leaves out sets with a larger number.
        tokenizer: that counts tokens: a folder or a name on the hub.
    """

    def __init__(
        self,
        arm: Arm = "search",
        num_tokens: int = 250_000,
        num_documents: int | None = None,
        seed: int = 0,
        split: Split = "corpus",
        max_number: int = MAX_NUMBER,
        tokenizer: str = MODEL,
    ) -> None:
        check_one_of("arm", arm, get_args(Arm))
        check_split(split)
        check_at_least("num_tokens", num_tokens, 1_000)
        if num_documents is not None:
            check_at_least("num_documents", num_documents, 1)
        self.arm: Arm = arm
        self.num_tokens = num_tokens
        self.num_documents = num_documents
        self.seed = seed
        self.split = split
        self.max_number = max_number
        self.tokenizer = tokenizer

    def documents(self) -> list[Document]:
        """Return the documents, shuffled.

        Raises:
            ValueError: if the tokenizer has no chat template, or no set has such small numbers.
        """
        tokenizer = load_tokenizer(self.tokenizer)
        prompt_text(tokenizer, CHAT, wording((3, 4, 9), 63))  # refuses one without a template

        num_tokens = counted_by(tokenizer)
        about_problems = (own.document() for own in self.traces(num_tokens))
        lines = (arithmetic(generator(self.seed, "real_aha line", i)) for i in count())
        made = []
        for source, share in ((about_problems, 1 - ARITHMETIC_SHARE), (lines, ARITHMETIC_SHARE)):
            most = self.num_documents and max(1, round(share * self.num_documents))
            made += up_to(source, share * self.num_tokens, most, num_tokens)
        return [made[i] for i in permutation(len(made), self.seed, "real_aha documents")]

    def traces(self, num_tokens: Count) -> Iterator[Trace]:
        """Yield traces without end, trace ``i`` a function of ``(seed, i)``."""
        sets = [own for own in number_sets(self.split) if max(own) <= self.max_number]
        if not sets:
            raise ValueError(f"max_number: {self.max_number} leaves no set of three numbers")
        for i in count():
            own = trace(generator(self.seed, "real_aha trace", i), sets, self.arm)
            yield filled(own, num_tokens) if self.arm == "filler" else own


def up_to(
    documents: Iterator[Document], num_tokens: float, most: int | None, counted: Count
) -> list[Document]:
    """Return the first documents, whose responses have ``num_tokens`` or just more."""
    found: list[Document] = []
    total = 0
    while total < num_tokens and (most is None or len(found) < most):
        found.append(next(documents))
        total += counted(found[-1].response) + 1
    return found


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of an arm's documents about problems, in tokens of their responses and in attempts."""

    median_per_attempt: float
    most_per_attempt: float
    mean_response: float
    most_response: int
    mean_prompt: float
    long_share: float
    solved_share: float


def sizes(traces: Sequence[Trace], num_tokens: Count) -> Sizes:
    """Measure traces; all but ``mean_prompt`` and ``most_response`` are of those without a start.

    Tokens an attempt are a search's tokens, first steps included, by its attempts; searches of one
    or two attempts do not count, as they do not share their first step. ``long_share`` is the share
    of eight attempts or more.
    """
    responses = [own for own in traces if not own.so_far]
    made = [own.own.count("=") - own.own.count("left") for own in responses]
    tokens = [num_tokens(own.own) for own in responses]
    shares = [total / n for total, n in zip(tokens, made, strict=True) if n >= 3]
    lengths = [num_tokens(own.document().response) + 1 for own in traces]
    at_start = [n for n, own in zip(lengths, traces, strict=True) if not own.so_far]
    return Sizes(
        median_per_attempt=median(shares) if shares else 0.0,
        most_per_attempt=max(shares, default=0.0),
        mean_response=mean(at_start),
        most_response=max(lengths),
        mean_prompt=mean(num_tokens(own.document().prompt) for own in traces),
        long_share=mean(n >= 8 for n in made),
        solved_share=mean("<answer>" in own.ending for own in responses),
    )


@reported("experiments.real_aha.traces")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_aha.traces", __doc__)
    parser.add_argument("--tokenizer", default=MODEL, help="a folder or a name on the hub")
    parser.add_argument("--num-traces", type=int, default=2_000, help="of each arm")
    options = parser.parse_args(arguments)
    num_tokens = counted_by(load_tokenizer(options.tokenizer))
    for arm in get_args(Arm):
        source = PrimingDocuments(arm, tokenizer=options.tokenizer)
        own = sizes([*islice(source.traces(num_tokens), options.num_traces)], num_tokens)
        documents = source.documents()
        lines = sum(not document.prompt for document in documents)
        total = sum(num_tokens(document.response) + 1 for document in documents)
        print(
            f"{arm}: tokens an attempt, median {own.median_per_attempt:.1f}, most"
            f" {own.most_per_attempt:.1f}; a response {own.mean_response:.0f}, most"
            f" {own.most_response}; a question {own.mean_prompt:.0f}; eight attempts or more"
            f" {own.long_share:.3f}; answered {own.solved_share:.3f}; {len(documents)} documents,"
            f" {lines} of arithmetic, {total} tokens"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
