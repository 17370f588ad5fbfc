"""Search at inference: an engine generates, a scorer judges, and the best response is kept."""

from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.beam import BeamSearch
from r1lit.search.best_of_n import BestOfN
from r1lit.search.dvts import DVTS
from r1lit.search.mcts import MCTS
from r1lit.search.partial_response import PartialResponse, Query
from r1lit.search.scorers import (
    Noisy,
    RewardScorer,
    Scorer,
    Sigmoid,
    ValueScorer,
    VerifierScorer,
)
from r1lit.search.steps import Step
from r1lit.search.weighted_best_of_n import WeightedBestOfN

__all__ = [
    "DVTS",
    "MCTS",
    "BeamSearch",
    "BestOfN",
    "Noisy",
    "PartialResponse",
    "Query",
    "RewardScorer",
    "ScoredResponse",
    "Scorer",
    "Search",
    "SearchResult",
    "Sigmoid",
    "Step",
    "ValueScorer",
    "VerifierScorer",
    "WeightedBestOfN",
]
