from .candidate import (
    R1_TEMPLATE as R1_TEMPLATE,
    Candidate as Candidate,
    Context as Context,
    Filter as Filter,
    ResponseTemplate as ResponseTemplate,
)
from .curate import curate as curate
from .curation import Curation as Curation
from .filters import (
    CodeBlocks as CodeBlocks,
    Correct as Correct,
    CorrectByJudge as CorrectByJudge,
    Decontaminate as Decontaminate,
    Dedupe as Dedupe,
    Finished as Finished,
    LanguageConsistent as LanguageConsistent,
    Length as Length,
    LongParagraphs as LongParagraphs,
    MaxPerProblem as MaxPerProblem,
    RepeatedText as RepeatedText,
    SmallPatch as SmallPatch,
    ValidCalls as ValidCalls,
    WellFormed as WellFormed,
)
from .refine import (
    EngineRefiner as EngineRefiner,
    Refined as Refined,
    Refiner as Refiner,
    RuleRefiner as RuleRefiner,
    SummaryRefiner as SummaryRefiner,
    ThinkingRefiner as ThinkingRefiner,
    ToR1Template as ToR1Template,
)
