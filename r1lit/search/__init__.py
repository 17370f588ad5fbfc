"""Search at inference: an engine generates, a scorer judges, and the best response is kept."""

from r1lit.search.algorithms import DVTS, MCTS, BeamSearch, BestOfN, WeightedBestOfN
from r1lit.search.base import ScoredResponse, Search, SearchResult
from r1lit.search.generation import PartialResponse, Query, Step
from r1lit.search.scorers import (
    Noisy,
    RewardScorer,
    Scorer,
    Sigmoid,
    ValueScorer,
    VerifierScorer,
)

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
