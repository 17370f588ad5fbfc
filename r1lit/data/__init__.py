"""Sources of problems and documents, and the data modules that batch them."""

from r1lit.data.bfcl_tasks import BFCLTasks
from r1lit.data.datamodule import (
    EvaluationOptions,
    PackingOptions,
    PromptOptions,
    R1DataModule,
    RolloutOptions,
)
from r1lit.data.difficulty import Difficulty
from r1lit.data.documents import CuratedDocuments, Mixture, Part, TableDocuments
from r1lit.data.livecodebench import LiveCodeBench
from r1lit.data.preference_data import PreferenceDataModule
from r1lit.data.preferences import Example, PreferenceSource, TableLabels, TablePairs, TableSteps
from r1lit.data.problem_tables import ChoiceTable, CountdownTable, TableProblems, TaskTable
from r1lit.data.repositories import RepositoryTasks
from r1lit.data.sources import (
    Document,
    DocumentSource,
    FewShot,
    InEnvironment,
    LateProblems,
    PassRates,
    ProblemSource,
    ReasoningGym,
)
from r1lit.data.taskset_tasks import TasksetTasks

__all__ = [
    "BFCLTasks",
    "ChoiceTable",
    "CountdownTable",
    "CuratedDocuments",
    "Difficulty",
    "Document",
    "DocumentSource",
    "EvaluationOptions",
    "Example",
    "FewShot",
    "InEnvironment",
    "LateProblems",
    "LiveCodeBench",
    "Mixture",
    "PackingOptions",
    "Part",
    "PassRates",
    "PreferenceDataModule",
    "PreferenceSource",
    "ProblemSource",
    "PromptOptions",
    "R1DataModule",
    "ReasoningGym",
    "RepositoryTasks",
    "RolloutOptions",
    "TableDocuments",
    "TableLabels",
    "TablePairs",
    "TableProblems",
    "TableSteps",
    "TaskTable",
    "TasksetTasks",
]
