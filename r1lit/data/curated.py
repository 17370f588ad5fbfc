"""Documents that rejection sampling kept, and mixtures of documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_only

from r1lit.data.base import Document, DocumentSource
from r1lit.data.documents import TableDocuments
from r1lit.data.tables import Row
from r1lit.seeding import permutation


class CuratedDocuments(TableDocuments):
    """The responses that `r1lit.callbacks.RejectionSampling` kept, from its ``sft.jsonl``.

    Args:
        path: that file.
        template: what the question is put into, as it will be in the RL that follows; see
            ``TableDocuments``.
        kinds: take lines of these kinds only; null takes all.
        languages: take lines in these languages only; null takes all.
        sources: take lines of problems from these sources only; null takes all.
        skip: lines left out at the beginning.
        limit: lines read after those; null reads all.
    """

    def __init__(
        self,
        path: str,
        template: str = "chat",
        kinds: Sequence[str] | None = None,
        languages: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        skip: int = 0,
        limit: int | None = None,
    ) -> None:
        super().__init__(path, template=template, skip=skip, limit=limit)
        self.wanted = {
            column: tuple(values)
            for column, values in (("kind", kinds), ("language", languages), ("source", sources))
            if values is not None
        }
        for column, values in self.wanted.items():
            if not values:
                raise ValueError(f"{column}s: an empty list chooses nothing; null means all")

    def chosen(self, row: Row) -> bool:
        """Return whether a line is selected."""
        return all(row.get(column) in values for column, values in self.wanted.items())

    def documents(self) -> list[Document]:
        """Return the chosen lines in their order.

        Raises:
            ValueError: if there is none, or a line lacks its prompt or response.
        """
        rows = self.table.rows({"prompt": "prompt", "response": "response", **self._columns()})
        documents = [self._document(row, n) for n, row in rows if self.chosen(row)]
        if not documents:
            raise ValueError(f"path: no line of {self.table.path} has {self.wanted}")
        return documents

    def _columns(self) -> dict[str, str]:
        return {f"{column}s": column for column in self.wanted}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a mixture.

    Args:
        source: its documents.
        share: how much of the mixture it is, against the shares of the others.
        name: what it is called in the printed line.
    """

    source: DocumentSource
    share: float
    name: str

    def __post_init__(self) -> None:
        if not self.share > 0:
            raise ValueError(f"share: {self.share} of part {self.name!r} is not positive")


class Mixture(DocumentSource):
    """Documents of several sources in fixed shares, such as reasoning : other = 3 : 1.

    R1 mixes about 600K reasoning documents with about 200K others (arXiv 2501.12948v1, Sec. 2.3.3).
    A part gives floor(share / all shares x ``num_documents``) documents, which the seed chooses
    without repetition; they keep their order, and the parts theirs. The counts are printed in one
    line, and ``describe`` returns them.

    Args:
        parts: the sources with their shares.
        num_documents: documents in all; null takes as many as the scarcest part allows.
        seed: of the choice.
    """

    def __init__(self, parts: list[Part], num_documents: int | None = None, seed: int = 0) -> None:
        if len({part.name for part in parts}) < len(parts) or not parts:
            raise ValueError("parts: give one or more, each with a name of its own")
        if num_documents is not None and num_documents < 1:
            raise ValueError(f"num_documents: {num_documents} is not positive; null means all")
        self.parts = parts
        self.num_documents = num_documents
        self.seed = seed
        self._counts: dict[str, tuple[int, int]] = {}

    def documents(self) -> list[Document]:
        """Return the chosen documents, part by part.

        Raises:
            ValueError: if a part has fewer documents than its share asks for.
        """
        found = {part.name: part.source.documents() for part in self.parts}
        mixed: list[Document] = []
        for part, count in zip(self.parts, self._chosen(found), strict=True):
            documents = found[part.name]
            order = permutation(len(documents), self.seed, "mixture", part.name)
            mixed += [documents[i] for i in sorted(order[:count])]
            self._counts[part.name] = (count, len(documents))
        rank_zero_only(print)(self._line())
        return mixed

    def _chosen(self, found: dict[str, list[Document]]) -> list[int]:
        shares = [Fraction(part.share).limit_denominator(10**6) for part in self.parts]
        shares = [share / sum(shares) for share in shares]
        sizes = [len(found[part.name]) for part in self.parts]
        total = self.num_documents
        if total is None:
            total = min(int(n / share) for n, share in zip(sizes, shares, strict=True))
        counts = [int(total * share) for share in shares]
        for part, count, size in zip(self.parts, counts, sizes, strict=True):
            if count > size:
                raise ValueError(
                    f"num_documents: {total} need {count} of part {part.name!r}, which has {size}"
                )
            if count == 0:
                raise ValueError(f"share: {part.share} of part {part.name!r} comes to no document")
        return counts

    def describe(self) -> dict[str, Any]:
        """Return how many documents of each part are taken, of how many there are."""
        return {
            name: {"taken": taken, "there": there} for name, (taken, there) in self._counts.items()
        }

    def _line(self) -> str:
        total = sum(taken for taken, _ in self._counts.values())
        shares = ", ".join(
            f"{name} {taken} of {there} ({100 * taken / total:.1f} %)"
            for name, (taken, there) in self._counts.items()
        )
        return f"mixture: {total} documents: {shares}"
