"""Curation: from responses drawn to the ones worth imitating."""

from r1lit.curation.base import Context, Filter
from r1lit.curation.candidate import R1_FORM, Candidate, Form
from r1lit.curation.curate import Curation, curate
from r1lit.curation.decontaminate import Decontaminate
from r1lit.curation.duplicates import Dedupe, MaxPerProblem
from r1lit.curation.engine_refiner import EngineRefiner
from r1lit.curation.filters import (
    CodeBlocks,
    Correct,
    Finished,
    Format,
    LanguageConsistent,
    Length,
    LongParagraphs,
    RepeatedText,
)
from r1lit.curation.judged import JudgedRight
from r1lit.curation.refine import Refined, Refiner, RuleRefiner, ToR1Form

__all__ = [
    "R1_FORM",
    "Candidate",
    "CodeBlocks",
    "Context",
    "Correct",
    "Curation",
    "Decontaminate",
    "Dedupe",
    "EngineRefiner",
    "Filter",
    "Finished",
    "Form",
    "Format",
    "JudgedRight",
    "LanguageConsistent",
    "Length",
    "LongParagraphs",
    "MaxPerProblem",
    "Refined",
    "Refiner",
    "RepeatedText",
    "RuleRefiner",
    "ToR1Form",
    "curate",
]
