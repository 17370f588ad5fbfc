"""Problems and documents, and how they become batches."""

from r1lit.data.base import Document, DocumentSource, ProblemSource
from r1lit.data.datamodule import R1DataModule
from r1lit.data.documents import TableDocuments
from r1lit.data.sources import CountdownTable, TableProblems

__all__ = [
    "CountdownTable",
    "Document",
    "DocumentSource",
    "ProblemSource",
    "R1DataModule",
    "TableDocuments",
    "TableProblems",
]
