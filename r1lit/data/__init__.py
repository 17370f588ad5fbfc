"""Problems and documents, and how they become batches."""

from r1lit.data.base import Document, DocumentSource, ProblemSource
from r1lit.data.datamodule import R1DataModule
from r1lit.data.documents import TableDocuments
from r1lit.data.livecodebench import LiveCodeBench
from r1lit.data.sources import CountdownTable, TableProblems
from r1lit.data.tasks import ChoiceTable, TaskTable

__all__ = [
    "ChoiceTable",
    "CountdownTable",
    "Document",
    "DocumentSource",
    "LiveCodeBench",
    "ProblemSource",
    "R1DataModule",
    "TableDocuments",
    "TableProblems",
    "TaskTable",
]
