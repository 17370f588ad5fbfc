"""Statistics of a curation: counts, losses by filter, and lengths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from r1lit.curation.candidate import Candidate

if TYPE_CHECKING:
    from r1lit.curation.curate import Curation

PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
GROUPS = ("source", "kind", "language")


class CurationStats:
    """Counts of responses generated, kept and dropped, and the lengths of each in tokens.

    A dropped response has the length of its text when it was dropped, a kept one as written.
    """

    def __init__(self, curation: Curation) -> None:
        self.curation = curation
        self.num_generated = self.num_kept = self.num_dropped = 0
        self.lengths: dict[str, list[int]] = {"drawn": [], "kept": [], "dropped": []}
        self._groups: dict[str, dict[str, Counter[str]]] = {
            group: {"drawn": Counter(), "kept": Counter()} for group in GROUPS
        }
        self._kept_of: dict[str, int] = {}
        self._losses: dict[tuple[str, str], dict[str, Any]] = {}

    def count_generated(self, candidate: Candidate) -> None:
        """Count a generated response."""
        self.num_generated += 1
        self.lengths["drawn"].append(candidate.num_tokens)
        self._kept_of.setdefault(candidate.problem.uid, 0)
        self._count("drawn", candidate)

    def count_kept(self, candidate: Candidate) -> None:
        """Count a kept response."""
        self.num_kept += 1
        self.lengths["kept"].append(candidate.num_tokens)
        self._kept_of[candidate.problem.uid] += 1
        self._count("kept", candidate)

    def count_dropped(self, stage: str, name: str, candidate: Candidate) -> None:
        """Count a response that filter ``name`` dropped."""
        self.num_dropped += 1
        self.lengths["dropped"].append(candidate.num_tokens)
        loss = self._losses.setdefault((stage, name), _no_loss())
        loss["dropped"] += 1
        loss["by_kind"][candidate.kind] += 1

    def count_input(self, stage: str, name: str, candidates: Sequence[Candidate]) -> None:
        """Count the candidates that a filter was applied to."""
        self._losses.setdefault((stage, name), _no_loss())["seen"] += len(candidates)

    def _count(self, what: str, candidate: Candidate) -> None:
        self._groups["source"][what][candidate.problem.source] += 1
        self._groups["kind"][what][candidate.kind] += 1
        self._groups["language"][what][candidate.language] += 1

    def numbers(self) -> dict[str, Any]:
        """Return all statistics under the names of the data card."""
        per_problem = Counter(self._kept_of.values())
        return {
            "num_problems": len(self._kept_of),
            "num_drawn": self.num_generated,
            "num_kept": self.num_kept,
            "num_dropped": self.num_dropped,
            **{
                f"by_{group}": {
                    name: {"drawn": drawn, "kept": counts["kept"][name]}
                    for name, drawn in sorted(counts["drawn"].items())
                }
                for group, counts in self._groups.items()
            },
            "losses": [
                {
                    "stage": stage,
                    "filter": name,
                    "seen": loss["seen"],
                    "dropped": loss["dropped"],
                    "by_kind": dict(sorted(loss["by_kind"].items())),
                }
                for (stage, name), loss in self._losses.items()
            ],
            "lengths": {what: _percentiles(found) for what, found in self.lengths.items()},
            "kept_per_problem": {str(n): per_problem[n] for n in sorted(per_problem)},
        }


def _no_loss() -> dict[str, Any]:
    return {"seen": 0, "dropped": 0, "by_kind": Counter()}


def _percentiles(lengths: Sequence[int]) -> dict[str, float] | None:
    if not lengths:
        return None
    values = np.percentile(np.asarray(lengths), PERCENTILES)
    named = {f"p{p}": round(float(v), 1) for p, v in zip(PERCENTILES, values, strict=True)}
    return {"mean": round(float(np.mean(lengths)), 1), **named, "total": int(np.sum(lengths))}
