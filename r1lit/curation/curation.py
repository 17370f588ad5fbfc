"""Settings of how responses are chosen and written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from r1lit.curation.candidate import R1_TEMPLATE, Context, Filter, ResponseTemplate
from r1lit.curation.refine import Refiner


@dataclass(frozen=True, kw_only=True)
class Curation:
    """Settings that choose and write down responses; see `r1lit.callbacks.RejectionSampling`."""

    filters: Sequence[Filter]
    refiners: Sequence[Refiner] = ()
    final_filters: Sequence[Filter] = ()
    response_template: ResponseTemplate = R1_TEMPLATE
    cut: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.cut, str) or any(not text for text in self.cut):
            raise ValueError(f"cut: {self.cut!r} is not a list of texts that are not empty")
        if not self.filters and not self.final_filters:
            raise ValueError("filters: none is given, so every response would be kept")

    def begin(self, context: Context) -> None:
        """Prepare filters and refiners for a run."""
        for filter_ in (*self.filters, *self.final_filters):
            filter_.begin(context)
        for refiner in self.refiners:
            refiner.begin(context)
