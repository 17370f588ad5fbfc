"""Filters: of single candidates, of duplicates, and of overlap with evaluation problems.

"we have filtered out chain-of-thought with mixed languages, long paragraphs, and code blocks. For
each prompt, we sample multiple responses and retain only the correct ones" (DeepSeek-R1, arXiv
2501.12948v1, Sec. 2.3.3: rejection sampling from the RL checkpoint).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import ndiff
from hashlib import blake2b
from itertools import groupby
from typing import Literal

import numpy as np

from r1lit.batches import Problem, Status, Verdict
from r1lit.curation.candidate import Candidate, Context, Filter
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least, check_between
from r1lit.metrics.language import SCRIPTS_OF, language_consistency
from r1lit.metrics.words import count_words, prose, repeated_share
from r1lit.rewards.rules import has_format
from r1lit.sandbox.repository import is_test
from r1lit.seeding import permutation
from r1lit.text.patches import PatchError, read_patch
from r1lit.text.prompts import squeezed
from r1lit.verifiers import GenerativeVerifier

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_BLANK = re.compile(r"\n[^\S\n]*\n")


class Correct(Filter):
    """Keeps responses with the verdict "right".

    R1, Sec. 2.3.3: "retain only the correct ones"; Sec. 2.3.1: R1-Zero's outputs for the cold start
    likewise. A refined text is graded again.
    """

    again = True

    def reason(self, candidate: Candidate) -> str | None:
        """Return the verdict's status and reason unless it is right."""
        return why_not_right(candidate)


def why_not_right(verdict: Candidate | Verdict) -> str | None:
    """Return status and reason unless the status is "right"."""
    if verdict.status == "right":
        return None
    return f"{verdict.status}: {verdict.reason}".rstrip(": ")


class Finished(Filter):
    """Drops responses cut at the token limit, which have no end to learn; ours."""

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length if it was cut."""
        return None if candidate.finished else f"cut after {candidate.num_tokens} tokens"


class ValidCalls(Filter):
    """Drops episodes with turns that the environment could not use, such as malformed calls; ours.

    Args:
        most: as many are kept.
    """

    def __init__(self, most: int = 0, kinds: Sequence[str] | None = None) -> None:
        super().__init__(kinds)
        check_at_least("most", most, 0)
        self.most = most

    def reason(self, candidate: Candidate) -> str | None:
        """Return the count if it is too large."""
        num = candidate.num_invalid
        return None if num <= self.most else f"{num} turns that the environment could not use"


class SmallPatch(Filter):
    """Drops patches that touch tests, or more than a repair needs; ours. The answer is a patch.

    Args:
        max_files: that may change.
        max_lines: that may be removed or added, together.
    """

    def __init__(
        self, max_files: int = 3, max_lines: int = 60, kinds: Sequence[str] | None = None
    ) -> None:
        super().__init__(kinds)
        check_at_least("max_files", max_files, 1)
        check_at_least("max_lines", max_lines, 1)
        self.max_files = max_files
        self.max_lines = max_lines

    def reason(self, candidate: Candidate) -> str | None:
        """Return the fault of a patch that touches tests or is too large; None for a good patch."""
        try:
            edits = read_patch(candidate.text)
        except PatchError as error:
            return str(error)
        paths = sorted({edit.path for edit in edits})
        touched = [path for path in paths if is_test(path)]
        if not edits or touched:
            return f"changes the test {touched[0]}" if touched else "no patch"
        if len(paths) > self.max_files:
            return f"changes {len(paths)} files"
        num = sum(
            line[:2] in ("- ", "+ ")
            for edit in edits
            for line in ndiff(edit.old.splitlines(), edit.new.splitlines())
        )
        return f"changes {num} lines" if num > self.max_lines else None


class LanguageConsistent(Filter):
    """Drops chains of thought in mixed languages: R1's "mixed languages", Sec. 2.3.3.

    The metric is R1's own (Nature, Eq. 7): words of the target language in the thinking / words in
    the thinking. The target is ``meta["language"]``, or the language of the question. A chain
    without words (empty, or formulas alone) is kept.

    Args:
        least: the least share of words of the target language.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(self, least: float = 0.9, kinds: Sequence[str] | None = None) -> None:
        super().__init__(kinds)
        check_between("least", least, 0, 1)
        self.least = least

    def reason(self, candidate: Candidate) -> str | None:
        """Return the share if it is too low."""
        thinking, language = candidate.thinking, candidate.language
        if language not in SCRIPTS_OF:
            raise ValueError(
                f"language: problem {candidate.problem.uid!r} names {language!r}, which is none of"
                f" {sorted(SCRIPTS_OF)}"
            )
        found = language_consistency(thinking, language)
        if found >= self.least:
            return None
        if found == 0 and not count_words(prose(thinking), symbols_are_words=True):
            return None
        return f"{found:.3f} of the words are {language}"


class LongParagraphs(Filter):
    """Drops chains with a long paragraph: R1's "long paragraphs", Sec. 2.3.3.

    A paragraph is what stands between two blank lines of the thinking. The paper gives no number;
    those here are ours.

    Args:
        max_words: the most words of a paragraph (see `r1lit.curation.filters`); None: any number.
        max_characters: the most characters; None: any number.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        max_words: int | None = 500,
        max_characters: int | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if max_words is None and max_characters is None:
            raise ValueError("max_words: give it, max_characters, or both")
        for key, value in (("max_words", max_words), ("max_characters", max_characters)):
            check_at_least(key, value, 1)
        self.max_words = max_words
        self.max_characters = max_characters

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length of the first paragraph that is too long."""
        for paragraph in _BLANK.split(candidate.thinking):
            num_characters = len(paragraph.strip())
            if self.max_characters is not None and num_characters > self.max_characters:
                return f"a paragraph of {num_characters} characters"
            # a word has a character at least
            if self.max_words is not None and num_characters > self.max_words:
                num_words = len(words(paragraph))
                if num_words > self.max_words:
                    return f"a paragraph of {num_words} words"
        return None


class CodeBlocks(Filter):
    """Drops chains with fenced code: R1's "code blocks", Sec. 2.3.3.

    A line of the thinking that begins with three backticks or tildes is a fence. The summary may
    hold code.
    """

    again = True

    def reason(self, candidate: Candidate) -> str | None:
        """Return a constant reason if there is a fence."""
        return "fenced code in the thinking" if _FENCE.search(candidate.thinking) else None


class WellFormed(Filter):
    """Keeps responses in the required format, by the rule of `r1lit.rewards.Format`.

    R1-Zero asks for ``<think>…</think> <answer>…</answer>`` (arXiv 2501.12948v1, Table 1); from the
    cold start on a summary follows the thinking (Sec. 2.3.1), which is ``answer_tags: false``.

    Args:
        answer_tags: whether the answer stands between tags with nothing beside it.
        think_prefilled: the prompt ended in ``<think>``, so the response does not open it.
        kinds: see ``Filter``.
    """

    def __init__(
        self,
        answer_tags: bool = False,
        think_prefilled: bool = False,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        self.answer_tags = answer_tags
        self.think_prefilled = think_prefilled

    def reason(self, candidate: Candidate) -> str | None:
        """Return a constant reason if the format is wrong."""
        if has_format(
            candidate.text, think_prefilled=self.think_prefilled, answer_tags=self.answer_tags
        ):
            return None
        return "not in the required format"


class Length(Filter):
    """Keeps responses of ``min_tokens`` to ``max_tokens`` tokens, EOS included.

    R1's rows hold 32,768 tokens (supplement, SFT), so a longer one could not be trained on.

    Args:
        min_tokens: the fewest tokens.
        max_tokens: the most; null is any number.
    """

    def __init__(
        self,
        min_tokens: int = 1,
        max_tokens: int | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        check_at_least("min_tokens", min_tokens, 1)
        if max_tokens is not None and max_tokens < min_tokens:
            raise ValueError(f"max_tokens: {max_tokens} is less than min_tokens: {min_tokens}")
        self.min_tokens = min_tokens
        self.max_tokens = max_tokens

    def reason(self, candidate: Candidate) -> str | None:
        """Return the length if it is out of range."""
        length = candidate.num_tokens
        if length < self.min_tokens or (self.max_tokens is not None and length > self.max_tokens):
            return f"{length} tokens"
        return None


class RepeatedText(Filter):
    """Drops responses that repeat themselves.

    R1-Zero's outputs have "poor readability" (Sec. 2.2.4). This metric is ours: the share of
    n-grams that stood before in the response (`r1lit.metrics.words.repeated_share`).

    Args:
        most: the largest share that is kept.
        n: words and marks of an n-gram.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(self, most: float = 0.3, n: int = 20, kinds: Sequence[str] | None = None) -> None:
        super().__init__(kinds)
        check_between("most", most, 0, 1)
        check_at_least("n", n, 1)
        self.most = most
        self.n = n

    def reason(self, candidate: Candidate) -> str | None:
        """Return the share if it is too large."""
        found = repeated_share(candidate.text, self.n)
        return None if found <= self.most else f"{found:.3f} of the {self.n}-grams stood before"


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
_FACTOR = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def words(text: str) -> list[str]:
    """Return the words of ``text``.

    >>> words("Make 24: 3 × x_1, 认为!")
    ['make', '24', '3', 'x', '1', '认', '为']
    """
    return _WORD.findall(text.lower())


def gram_numbers(text_words: list[str], n: int) -> np.ndarray:
    """Return one number for each n-gram; equal n-grams have equal numbers within this process."""
    num_grams = len(text_words) - n + 1
    if num_grams < 1:
        return np.empty(0, dtype=np.uint64)
    numbers = np.fromiter(map(hash, text_words), dtype=np.int64, count=len(text_words))
    word_numbers = numbers.view(np.uint64)
    grams = np.zeros(num_grams, dtype=np.uint64)
    factor = 1
    for place in range(n):
        grams += word_numbers[place : place + num_grams] * np.uint64(factor)
        factor = factor * _FACTOR & _MASK
    return grams


def digest(*texts: str, size: int = 8) -> int:
    """Return a number of ``size`` bytes for texts, the same in every process."""
    state = blake2b(digest_size=size)
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(state.digest(), "big")


LEAST_FOR_WORDING = 10


class Decontaminate(Filter):
    """Drops candidates that share any 10-gram with an evaluation problem.

    R1's supplement decontaminates its data by 10-grams. Made exact here: 10 consecutive words (as
    in `r1lit.curation.filters`: runs of letters and digits, single Han characters, lower case, no
    marks) that stand in an evaluation problem's question, or in its gold answer, and in the
    candidate's question or response. A question of fewer than 10 words has no 10-gram; the
    candidate's question may not have the same words then.

    The wording that a benchmark puts around its problems is no content: n-grams that stand in more
    than ``wording_share`` of the questions of one source (from 10 questions on) are left out.

    Args:
        evaluations: what may not be in the data, as in ``data.test``.
        n: words of an n-gram.
        wording_share: 1 leaves nothing out.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        evaluations: list[ProblemSource],
        n: int = 10,
        wording_share: float = 0.5,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if not evaluations:
            raise ValueError("evaluations: no source is given, so nothing would be kept out")
        check_at_least("n", n, 2)
        check_between("wording_share", wording_share, 0, 1)
        self.evaluations = evaluations
        self.n = n
        self.wording_share = wording_share
        self._grams: np.ndarray | None = None
        self._of: dict[int, str] = {}
        self._short: dict[tuple[str, ...], str] = {}
        self._known_question: tuple[str, str | None] | None = None

    def read(self) -> None:
        """Build the index of the evaluations, once.

        Raises:
            ValueError: naming the source that cannot be read.
        """
        if self._grams is None:
            for index, source in enumerate(self.evaluations):
                of_one: dict[str, list[Problem]] = {}
                try:
                    problems = source.problems()
                except ValueError as error:
                    raise ValueError(f"Decontaminate.evaluations[{index}]: {error}") from error
                for problem in problems:
                    of_one.setdefault(problem.source, []).append(problem)
                for problems in of_one.values():
                    self._add(problems)
            self._grams = np.sort(np.fromiter(self._of, dtype=np.uint64, count=len(self._of)))

    def begin(self, context: Context) -> None:
        """Build the index, if a command has not before it generated."""
        self.read()

    def _add(self, problems: list[Problem]) -> None:
        in_question: list[tuple[str, list[int]]] = []
        for problem in problems:
            found = words(problem.question)
            if len(found) < self.n:
                self._short.setdefault(tuple(found), problem.uid)
            in_question.append((problem.uid, self._unique(found)))
        counts = Counter(gram for _, grams in in_question for gram in grams)
        most = self.wording_share * len(problems)
        if len(problems) < LEAST_FOR_WORDING:
            most = len(problems)
        for uid, grams in in_question:
            for gram in grams:
                if counts[gram] <= most:
                    self._of.setdefault(gram, uid)
        for problem in problems:
            for gram in self._unique(words(problem.answer)):
                self._of.setdefault(gram, problem.uid)

    def _unique(self, found: list[str]) -> list[int]:
        return list(dict.fromkeys(gram_numbers(found, self.n).tolist()))

    def reason(self, candidate: Candidate) -> str | None:
        """Return the shared words and the uid of the evaluation problem."""
        known = self._known_question
        if known is None or known[0] != candidate.problem.question:
            known = (candidate.problem.question, self._in_question(candidate.problem.question))
            self._known_question = known
        return known[1] or self._shared(words(candidate.text), "response")

    def _in_question(self, question: str) -> str | None:
        found = words(question)
        short = self._short.get(tuple(found))
        if short is not None:
            return f"the question of {short}"
        return self._shared(found, "question")

    def _shared(self, found: list[str], where: str) -> str | None:
        assert self._grams is not None, "begin comes first"
        grams = gram_numbers(found, self.n)
        if not len(grams) or not len(self._grams):
            return None
        places = np.searchsorted(self._grams, grams).clip(max=len(self._grams) - 1)
        hits = np.flatnonzero(self._grams[places] == grams)
        if not len(hits):
            return None
        first = int(hits[0])
        shared = " ".join(found[first : first + self.n])
        return f"the {where} shares “{shared}” with {self._of[int(grams[first])]}"


def by_problem(candidates: Sequence[Candidate]) -> list[list[int]]:
    """Return the rows of each problem's candidates."""
    rows = groupby(range(len(candidates)), key=lambda row: candidates[row].problem.uid)
    return [list(group) for _, group in rows]


class Dedupe(Filter):
    """Drops responses equal to an earlier one, or nearly equal to one of the same problem.

    R1's reports do not say how they treat duplicates; this is ours. Equal: the same question and
    response, white space aside, anywhere in the run. Nearly equal: two responses to one problem
    whose sets of word n-grams have a Jaccard index (shared / all) of ``jaccard`` or more. A
    response of fewer than n words is one gram.

    Args:
        jaccard: 1 drops the same set of n-grams; None compares no sets.
        n: words of an n-gram.
        kinds: see ``Filter``.
    """

    def __init__(
        self,
        jaccard: float | None = 0.9,
        n: int = 5,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        if jaccard is not None:
            check_between("jaccard", jaccard, 0, 1)
        check_at_least("n", n, 1)
        self.jaccard = jaccard
        self.n = n
        self._seen: set[int] = set()

    def begin(self, context: Context) -> None:
        """Forget every response."""
        self._seen.clear()

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return the drop reason of each candidate that repeats an earlier one."""
        whys: list[str | None] = [None] * len(candidates)
        for rows in by_problem(candidates):
            kept: list[tuple[int, set[int]]] = []
            for row in rows:
                candidate = candidates[row]
                name = digest(squeezed(candidate.problem.question), squeezed(candidate.text))
                if name in self._seen:
                    whys[row] = "an equal response came before"
                    continue
                grams = self._grams(candidate.text) if self.jaccard is not None else set()
                whys[row] = self._near(grams, kept)
                if whys[row] is None:
                    self._seen.add(name)
                    kept.append((candidate.sample, grams))
        return whys

    def _grams(self, text: str) -> set[int]:
        found = words(text)
        return set(gram_numbers(found, min(self.n, max(1, len(found)))).tolist())

    def _near(self, grams: set[int], kept: Sequence[tuple[int, set[int]]]) -> str | None:
        if self.jaccard is None:
            return None
        for sample, others in kept:
            shorter, longer = sorted((len(grams), len(others)))
            if shorter < self.jaccard * longer:  # the index cannot be larger than this ratio
                continue
            shared = len(grams & others)
            index = shared / (len(grams) + len(others) - shared) if longer else 1.0
            if index >= self.jaccard:
                return f"Jaccard index {index:.3f} with sample {sample}"
        return None


class MaxPerProblem(Filter):
    """Keeps at most ``n`` responses to a problem, so that easy problems do not fill the data.

    R1 samples "multiple responses" a prompt (Sec. 2.3.3) and does not say how many it keeps. Which
    ones are kept is a function of the seed and the problem: "random" ones, the "first" samples,
    or the "shortest" or "longest" by tokens, the lower sample on a tie.

    Args:
        n: how many to keep.
        prefer: which ones, "random", "first", "shortest" or "longest".
    """

    def __init__(
        self,
        n: int = 4,
        prefer: Literal["random", "first", "shortest", "longest"] = "random",
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        check_at_least("n", n, 1)
        self.n = n
        self.prefer = prefer
        self._seed = 0

    def begin(self, context: Context) -> None:
        """Take the seed."""
        self._seed = context.seed

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return a drop reason for all but ``n`` candidates of a problem."""
        whys: list[str | None] = [None] * len(candidates)
        for rows in by_problem(candidates):
            if len(rows) <= self.n:
                continue
            for row in self._ranked(candidates, rows)[self.n :]:
                whys[row] = f"{self.n} of {len(rows)} are kept ({self.prefer})"
        return whys

    def _ranked(self, candidates: Sequence[Candidate], rows: list[int]) -> list[int]:
        if self.prefer == "random":
            uid = candidates[rows[0]].problem.uid
            order = permutation(len(rows), self._seed, "max_per_problem", uid)
            return [rows[i] for i in order]
        sign = {"first": 0, "shortest": 1, "longest": -1}[self.prefer]
        return sorted(rows, key=lambda row: (sign * candidates[row].num_tokens, row))


OPEN_STATUSES: tuple[Status, ...] = ("unparsed", "error", "timeout")


class CorrectByJudge(Filter):
    """Keeps right responses; queries an LLM judge on those that rules did not decide.

    R1, Sec. 2.3.3: "we expand the dataset by incorporating additional data, some of which use a
    generative reward model by feeding the ground-truth and model predictions into DeepSeek-V3 for
    judgment". Use it instead of ``Correct``. Give the verifier a ``cache``: then a repeated run
    sends no request twice and writes the same bytes.

    Args:
        verifier: the judge; it gets the question, the gold answer and the answer part.
        undecided: the statuses that it judges; add "wrong" to have wrong answers judged too.
        kinds: see ``Filter``.
    """

    again = True

    def __init__(
        self,
        verifier: GenerativeVerifier,
        undecided: Sequence[Status] = OPEN_STATUSES,
        kinds: Sequence[str] | None = None,
    ) -> None:
        super().__init__(kinds)
        known = (*OPEN_STATUSES, "wrong")
        if not undecided or any(status not in known for status in undecided):
            raise ValueError(f"undecided: {list(undecided)} is not a list of some of {known}")
        self.verifier = verifier
        self.undecided = tuple(undecided)

    def reasons(self, candidates: Sequence[Candidate]) -> list[str | None]:
        """Return why each is not right, after one batch of queries about the undecided ones."""
        rows = [row for row, c in enumerate(candidates) if c.status in self.undecided]
        verdicts = self.verifier.verify_batch(
            [candidates[row].text for row in rows], [candidates[row].problem for row in rows]
        )
        verdict_by_row = dict(zip(rows, verdicts, strict=True))
        return [
            why_not_right(verdict_by_row.get(row, candidate))
            for row, candidate in enumerate(candidates)
        ]
