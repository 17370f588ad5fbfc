"""Long context, made here: needles in a haystack and chains of facts, as RULER (arXiv 2404.06654).

A problem's text is filled with sentences of everyday life, made by a seed, up to a number of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from r1lit.data import ProblemSource
from r1lit.errors import check_at_least, check_one_of
from r1lit.problems import Problem, Verdict
from r1lit.seeding import generator
from r1lit.verifiers.base import Verifier, conclude
from r1lit.verifiers.ifeval import judged_text

WHO = ("The baker", "Our neighbour", "A gardener", "The teacher", "My cousin", "The old sailor",
       "A violinist", "The postman", "The librarian", "A carpenter")  # fmt: skip
WHAT = ("carried a basket of apples", "repaired the wooden fence", "watched the slow river",
        "wrote a letter to a friend", "painted the kitchen wall", "counted the passing trains",
        "swept the narrow stairs", "folded the clean sheets", "fed the grey horses",
        "read the morning paper")  # fmt: skip
WHERE = ("behind the mill", "near the market", "in the quiet garden", "by the station",
         "under the old bridge", "at the edge of the forest", "beside the harbour",
         "in front of the school", "along the southern road", "on the hill")  # fmt: skip
WHEN = ("before sunrise", "on a rainy Monday", "late in the evening", "after the concert",
        "during the long winter", "while it was snowing", "just after lunch")  # fmt: skip
TOKENS_A_WORD = 1.3
"""Of such sentences, in tokenizers of some 100,000 pieces."""


class LongContext(ProblemSource):
    """Questions about a long text: ``needle`` asks for one number, ``hops`` follows variables.

    needle   "The special number of <name> is <number>." at one of ten depths, among other names
    hops     X1 = <number>, X2 = X1, … in random places: all variables that hold the number

    Args:
        path: unused, as there is no data to load.
        task: which of the two.
        lengths: tokens of the prompts, about.
        num_problems: of each length.
        num_hops: links of a chain.
        seed: of the texts.
        limit: problems of each length.
    """

    def __init__(
        self,
        path: str = "",
        task: Literal["needle", "hops"] = "needle",
        lengths: Sequence[int] = (4096, 8192, 16384, 32768, 65536, 131072),
        num_problems: int = 50,
        num_hops: int = 4,
        seed: int = 0,
        limit: int | None = None,
    ) -> None:
        check_one_of("task", task, ("needle", "hops"))
        for length in lengths:
            check_at_least("lengths", length, 256)
        self.task = task
        self.lengths = tuple(lengths)
        self.num_problems = num_problems if limit is None else min(limit, num_problems)
        self.num_hops = num_hops
        self.seed = seed

    def problems(self) -> list[Problem]:
        """Return the problems, the shortest texts first."""
        make = self._needle if self.task == "needle" else self._hops
        return [make(length, n) for length in self.lengths for n in range(self.num_problems)]

    def _text(self, length: int, n: int, facts: Sequence[str], depths: Sequence[float]) -> str:
        """Return about ``length`` tokens of sentences, with ``facts`` at ``depths`` from 0 to 1."""
        random = generator(self.seed, self.task, "text", length, n)
        sentences: list[str] = []
        words, wanted = 0, int((length - 200) / TOKENS_A_WORD)
        while words < wanted:
            parts = [part[int(random.integers(len(part)))] for part in (WHO, WHAT, WHERE, WHEN)]
            sentences.append(" ".join(parts) + ".")
            words += len(sentences[-1].split())
        for fact, depth in sorted(zip(facts, depths, strict=True), key=lambda pair: -pair[1]):
            sentences.insert(round(depth * len(sentences)), fact)
        return " ".join(sentences)

    def _needle(self, length: int, n: int) -> Problem:
        random = generator(self.seed, "needle", length, n)
        names = [f"{a}-{b}" for a in ("amber", "coral", "ivory", "olive") for b in ("owl", "fox")]
        names = [names[i] for i in random.permutation(len(names))[:4]]
        numbers = [str(i) for i in random.integers(1_000_000, 9_999_999, 4)]
        facts = [f"The special number of {a} is {b}." for a, b in zip(names, numbers, strict=True)]
        depth = (n % 10 + 0.5) / 10
        text = self._text(length, n, facts, [depth, *random.random(3)])
        question = (
            f"A text follows. Remember its special numbers.\n\n{text}\n\nWhat is the special number"
            f" of {names[0]}? Answer with the number alone."
        )
        return self._problem(length, n, question, numbers[0], {"depth": f"{depth:.2f}"})

    def _hops(self, length: int, n: int) -> Problem:
        random = generator(self.seed, "hops", length, n)
        letters = [chr(65 + i) for i in range(26)]
        order = random.permutation(26 * 26)[: 2 * (self.num_hops + 1)]
        names = [letters[i // 26] + letters[i % 26] + "X" for i in order]
        facts: list[str] = []
        chains = names[: self.num_hops + 1], names[self.num_hops + 1 :]
        numbers = [str(i) for i in random.permutation(90_000)[:2] + 10_000]
        for chain, number in zip(chains, numbers, strict=True):
            values = [number, *chain[:-1]]
            facts += [f"VAR {a} = {b}." for a, b in zip(chain, values, strict=True)]
        text = self._text(length, n, facts, list(random.random(len(facts))))
        question = (
            f"A text follows, in which variables are set.\n\n{text}\n\nWhich variables hold the"
            f" value {numbers[0]}, directly or through others? Answer with their names alone."
        )
        return self._problem(length, n, question, " ".join(sorted(chains[0])), {})

    def _problem(
        self, length: int, n: int, question: str, answer: str, meta: dict[str, str]
    ) -> Problem:
        return Problem(
            uid=f"{self.task}-{length}-{n}",
            question=question,
            answer=answer,
            source=f"long_{self.task}",
            meta={"length": length, **meta},
        )


class AllNamed(Verifier):
    """Right if the answer part names every word of the gold answer, and no other of its kind.

    A number is of the kind of numbers of as many digits, a variable of capital letters that
    end in X: VAR, with which a fact begins, is none.
    """

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        wanted = set(problem.answer.split())
        words = judged_text(response)[-20_000:].replace(",", " ").split()
        cleaned = (word.strip(".,;:*`()[]\"'$") for word in words)
        kind = {len(word) for word in wanted}
        named = {
            word
            for word in cleaned
            if len(word) in kind
            and (word.isdigit() or (word.isupper() and word.isalpha() and word.endswith("X")))
        }
        if not named:
            return conclude("unparsed", None, "no name or number")
        right = named == wanted
        reason = (
            "" if right else f"{len(named & wanted)} of {len(wanted)}, others {len(named - wanted)}"
        )
        return conclude("right" if right else "wrong", " ".join(sorted(named)), reason)
