"""Problems and documents, and how they become batches."""

from r1lit.data.base import Document, DocumentSource, ProblemSource
from r1lit.data.curated import CuratedDocuments, Mixture, Part
from r1lit.data.datamodule import R1DataModule
from r1lit.data.documents import TableDocuments
from r1lit.data.livecodebench import LiveCodeBench
from r1lit.data.preference_data import PreferenceDataModule
from r1lit.data.preferences import Example, PreferenceSource, TableLabels, TablePairs
from r1lit.data.sources import CountdownTable, TableProblems
from r1lit.data.tasks import ChoiceTable, TaskTable

__all__ = [
    "ChoiceTable",
    "CountdownTable",
    "CuratedDocuments",
    "Document",
    "DocumentSource",
    "Example",
    "LiveCodeBench",
    "Mixture",
    "Part",
    "PreferenceDataModule",
    "PreferenceSource",
    "ProblemSource",
    "R1DataModule",
    "TableDocuments",
    "TableLabels",
    "TablePairs",
    "TableProblems",
    "TaskTable",
]
