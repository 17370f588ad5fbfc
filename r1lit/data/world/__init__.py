"""The small world: problems a small model can learn to solve, and the corpus it reads first."""

from r1lit.data.world.chain import WorldChain
from r1lit.data.world.corpus import WorldCorpus
from r1lit.data.world.countdown import WorldCountdown

__all__ = ["WorldChain", "WorldCorpus", "WorldCountdown"]
