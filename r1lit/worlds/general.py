"""General requests of the small world as problems, and as conversations to train on."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from r1lit.batches import Problem
from r1lit.data.base import Document, DocumentSource, ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds.answers import REFUSAL, Quality, answer, content, refuse
from r1lit.worlds.requests import SHARES, Request, draw
from r1lit.worlds.splits import Split, check_split, draw_distinct
from r1lit.worlds.voice import check_shares
from r1lit.worlds.writing import weighted

SUPPLIED: tuple[tuple[Quality, float], ...] = (
    ("good", 0.2),
    ("plain", 0.45),
    ("rambling", 0.2),
    ("curt", 0.15),
)
SUPPLIED_REFUSALS = 0.5


class WorldRequests(ProblemSource):
    """Different requests of one split.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        seed: of the sample.
        chinese: the share of questions in Chinese.
        families: of requests, from ``SHARES``; all if left out.
        references: whether each has a gold answer, ``reference_answer``, for a judge to compare
            with.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        seed: int = 0,
        chinese: float = 0.3,
        families: Sequence[str] | None = None,
        references: bool = False,
    ) -> None:
        check_at_least("num_problems", num_problems, 1)
        check_split(split)
        check_shares(chinese=chinese)
        known = [family for family, _ in SHARES]
        for family in families or ():
            if family not in known:
                raise ValueError(f"families: {family!r} is not one of {', '.join(known)}")
        self.split = split
        self.num_problems = num_problems
        self.seed = seed
        self.chinese = chinese
        self.families = tuple(families or known)
        self.references = references

    def problems(self) -> list[Problem]:
        """Return the requests, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        return [
            problem_of(request, reference_answer(request) if self.references else "")
            for request in self.requests()
        ]

    def requests(self) -> list[Request]:
        """Return the requests, without repetition.

        Raises:
            ValueError: if the split holds too few.
        """
        rng = generator(self.seed, "requests", self.split)
        shares = tuple((f, share) for f, share in SHARES if f in self.families)
        found = draw_distinct(
            lambda: draw(rng, self.split, self.chinese, shares),
            attrgetter("uid"),
            self.num_problems,
            f"split {self.split!r} of {', '.join(self.families)}",
        )
        return list(found.values())


class WorldConversations(DocumentSource):
    """Requests with answers as people supplied them: SFT data without reasoning problems.

    Most answers are right, few are friendly, some ramble, and half of the harmful requests are
    refused: preference is left to reinforcement learning. Requests that need no chain of thought
    have none, as R1 does with a greeting. The prompt is the chat template's.

    Args:
        num_documents: how many.
        seed: of requests and answers.
        chinese: the share of questions in Chinese.
        split: of the requests: corpus, train or held_out.
    """

    def __init__(
        self, num_documents: int = 400, seed: int = 0, chinese: float = 0.3, split: Split = "train"
    ) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_split(split)
        check_shares(chinese=chinese)
        self.num_documents = num_documents
        self.seed = seed
        self.chinese = chinese
        self.split = split

    def documents(self) -> list[Document]:
        """Return sampled requests, with a sampled answer each."""
        return [self._document(i) for i in range(self.num_documents)]

    def _document(self, index: int) -> Document:
        rng = generator(self.seed, "conversation", self.split, index)
        request = draw(rng, self.split, self.chinese)
        if request.kind == "harmful" and rng.random() < SUPPLIED_REFUSALS:
            work = refuse(request)
        else:
            work = answer(request, weighted(rng, SUPPLIED), rng)
        return Document(
            prompt=request.question,
            response=in_r1_template(work.thinking, work.answer),
            chat=True,
        )


def in_r1_template(thinking: str, summary: str) -> str:
    """Return a response as R1 writes it: the chain in think tags, then the summary."""
    return f" <think>{f' {thinking}' if thinking else ''} </think> {summary}"


def reference_answer(request: Request) -> str:
    """Return a plain, right answer, one of many; to a harmful request the refusal."""
    if request.kind == "harmful":
        return REFUSAL[request.place]
    return content(request, request.place, generator(0, "reference", request.uid))


def problem_of(request: Request, reference: str = "") -> Problem:
    """Return a request as a problem, with the request in its meta; ``reference`` is its answer."""
    meta: dict[str, Any] = {
        "kind": request.kind,
        "language": request.language,
        "family": request.family,
        "wording": request.wording,
        "slots": list(request.slots),
    }
    return Problem(
        uid=request.uid,
        question=request.question,
        answer=reference,
        source=request.family,
        verifier="world",
        meta=meta,
    )


def request_of(problem: Problem) -> Request | None:
    """Return the request of a problem, or None for another kind of problem."""
    meta = problem.meta
    if "family" not in meta:
        return None
    return Request(
        family=meta["family"],
        language=meta["language"],
        wording=int(meta["wording"]),
        slots=tuple(meta["slots"]),
    )
