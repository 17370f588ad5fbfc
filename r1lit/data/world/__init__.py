"""The small world: problems, requests, and the pages its base model has read."""

from r1lit.data.world.chain import WorldChain
from r1lit.data.world.corpus import WorldCorpus
from r1lit.data.world.countdown import WorldCountdown
from r1lit.data.world.general import WorldConversations, WorldRequests
from r1lit.data.world.judging import InstructionFollowing, TrueHelpfulness, TrueSafety, WorldJudge

__all__ = [
    "InstructionFollowing",
    "TrueHelpfulness",
    "TrueSafety",
    "WorldChain",
    "WorldConversations",
    "WorldCorpus",
    "WorldCountdown",
    "WorldJudge",
    "WorldRequests",
]
