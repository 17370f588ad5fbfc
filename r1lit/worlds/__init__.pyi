from .chain import WorldChain as WorldChain
from .corpus import WorldCorpus as WorldCorpus
from .countdown import WorldCountdown as WorldCountdown
from .forms import WorldForms as WorldForms
from .grading import (
    InstructionFollowing as InstructionFollowing,
    TrueHelpfulness as TrueHelpfulness,
    TrueSafety as TrueSafety,
    WorldGrader as WorldGrader,
)
from .judging import WorldOpinions as WorldOpinions
from .programs import WorldPrograms as WorldPrograms
from .puzzles import WorldPuzzles as WorldPuzzles
from .repairs import (
    WorldRepairs as WorldRepairs,
    WorldRepository as WorldRepository,
    WorldRepositoryVerifier as WorldRepositoryVerifier,
)
from .repairs_corpus import RepairsCorpus as RepairsCorpus
from .requests import WorldConversations as WorldConversations, WorldRequests as WorldRequests
from .roles import RolePlay as RolePlay, WorldRoles as WorldRoles
from .roles_corpus import RolesCorpus as RolesCorpus
from .search_corpus import SearchCorpus as SearchCorpus, WorldSearch as WorldSearch
from .tools import (
    Calculator as Calculator,
    Guessing as Guessing,
    LookUp as LookUp,
    WorldGuessing as WorldGuessing,
    WorldLookUp as WorldLookUp,
    WorldSums as WorldSums,
)
from .tools_corpus import ToolsCorpus as ToolsCorpus
