"""The small world: problems, requests, and the pages its base model has read."""

from r1lit.worlds.chain import WorldChain
from r1lit.worlds.corpus import WorldCorpus
from r1lit.worlds.countdown import WorldCountdown
from r1lit.worlds.general import WorldConversations, WorldRequests
from r1lit.worlds.judging import InstructionFollowing, TrueHelpfulness, TrueSafety, WorldGrader

__all__ = [
    "InstructionFollowing",
    "TrueHelpfulness",
    "TrueSafety",
    "WorldChain",
    "WorldConversations",
    "WorldCorpus",
    "WorldCountdown",
    "WorldGrader",
    "WorldRequests",
]
