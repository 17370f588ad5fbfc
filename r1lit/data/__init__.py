"""Sources of problems and documents, and the data modules that batch them."""

from r1lit.data.base import Document, DocumentSource, ProblemSource
from r1lit.data.curated import CuratedDocuments, Mixture, Part
from r1lit.data.datamodule import R1DataModule
from r1lit.data.documents import TableDocuments
from r1lit.data.late import LateProblems
from r1lit.data.livecodebench import LiveCodeBench
from r1lit.data.options import (
    EvaluationOptions,
    PackingOptions,
    PromptOptions,
    RolloutOptions,
)
from r1lit.data.preference_data import PreferenceDataModule
from r1lit.data.preferences import Example, PreferenceSource, TableLabels, TablePairs
from r1lit.data.sources import CountdownTable, TableProblems
from r1lit.data.steps import TableSteps
from r1lit.data.tasks import ChoiceTable, TaskTable

__all__ = [
    "ChoiceTable",
    "CountdownTable",
    "CuratedDocuments",
    "Document",
    "DocumentSource",
    "EvaluationOptions",
    "Example",
    "LateProblems",
    "LiveCodeBench",
    "Mixture",
    "PackingOptions",
    "Part",
    "PreferenceDataModule",
    "PreferenceSource",
    "ProblemSource",
    "PromptOptions",
    "R1DataModule",
    "RolloutOptions",
    "TableDocuments",
    "TableLabels",
    "TablePairs",
    "TableProblems",
    "TableSteps",
    "TaskTable",
]
