from .algorithms import (
    DVTS as DVTS,
    MCTS as MCTS,
    BeamSearch as BeamSearch,
    BestOfN as BestOfN,
    WeightedBestOfN as WeightedBestOfN,
)
from .base import ScoredResponse as ScoredResponse, Search as Search, SearchResult as SearchResult
from .generation import PartialResponse as PartialResponse, Query as Query, Step as Step
from .scorers import (
    Noisy as Noisy,
    RewardScorer as RewardScorer,
    Scorer as Scorer,
    Sigmoid as Sigmoid,
    ValueScorer as ValueScorer,
    VerifierScorer as VerifierScorer,
)
