"""Curation: generated responses are filtered and rewritten into documents to train on."""

from r1lit.curation.candidate import R1_TEMPLATE, Candidate, Context, Filter, ResponseTemplate
from r1lit.curation.curate import Curation, curate
from r1lit.curation.filters import (
    CodeBlocks,
    Correct,
    CorrectByJudge,
    Decontaminate,
    Dedupe,
    Finished,
    LanguageConsistent,
    Length,
    LongParagraphs,
    MaxPerProblem,
    RepeatedText,
    SmallPatch,
    ValidCalls,
    WellFormed,
)
from r1lit.curation.refine import EngineRefiner, Refined, Refiner, RuleRefiner, ToR1Template

__all__ = [
    "R1_TEMPLATE",
    "Candidate",
    "CodeBlocks",
    "Context",
    "Correct",
    "CorrectByJudge",
    "Curation",
    "Decontaminate",
    "Dedupe",
    "EngineRefiner",
    "Filter",
    "Finished",
    "LanguageConsistent",
    "Length",
    "LongParagraphs",
    "MaxPerProblem",
    "Refined",
    "Refiner",
    "RepeatedText",
    "ResponseTemplate",
    "RuleRefiner",
    "SmallPatch",
    "ToR1Template",
    "ValidCalls",
    "WellFormed",
    "curate",
]
