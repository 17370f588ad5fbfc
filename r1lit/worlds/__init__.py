"""The small world: problems, requests, and the corpus of its base model."""

from r1lit.worlds.chain import WorldChain
from r1lit.worlds.corpus import WorldCorpus
from r1lit.worlds.countdown import WorldCountdown
from r1lit.worlds.forms import WorldForms
from r1lit.worlds.grading import InstructionFollowing, TrueHelpfulness, TrueSafety, WorldGrader
from r1lit.worlds.judging import WorldOpinions
from r1lit.worlds.programs import WorldPrograms
from r1lit.worlds.puzzles import WorldPuzzles
from r1lit.worlds.repairs import WorldRepairs, WorldRepository, WorldRepositoryVerifier
from r1lit.worlds.repairs_corpus import RepairsCorpus
from r1lit.worlds.requests import WorldConversations, WorldRequests
from r1lit.worlds.roles import RolePlay, WorldRoles
from r1lit.worlds.roles_corpus import RolesCorpus
from r1lit.worlds.search_corpus import SearchCorpus, WorldSearch
from r1lit.worlds.tools import (
    Calculator,
    Guessing,
    LookUp,
    WorldGuessing,
    WorldLookUp,
    WorldSums,
)
from r1lit.worlds.tools_corpus import ToolsCorpus

__all__ = [
    "Calculator",
    "Guessing",
    "InstructionFollowing",
    "LookUp",
    "RepairsCorpus",
    "RolePlay",
    "RolesCorpus",
    "SearchCorpus",
    "ToolsCorpus",
    "TrueHelpfulness",
    "TrueSafety",
    "WorldChain",
    "WorldConversations",
    "WorldCorpus",
    "WorldCountdown",
    "WorldForms",
    "WorldGrader",
    "WorldGuessing",
    "WorldLookUp",
    "WorldOpinions",
    "WorldPrograms",
    "WorldPuzzles",
    "WorldRepairs",
    "WorldRepository",
    "WorldRepositoryVerifier",
    "WorldRequests",
    "WorldRoles",
    "WorldSearch",
    "WorldSums",
]
