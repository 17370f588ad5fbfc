from .bfcl_tasks import BFCLTasks as BFCLTasks
from .datamodule import (
    EvaluationOptions as EvaluationOptions,
    PackingOptions as PackingOptions,
    PromptOptions as PromptOptions,
    R1DataModule as R1DataModule,
    RolloutOptions as RolloutOptions,
)
from .difficulty import Difficulty as Difficulty
from .documents import (
    CuratedDocuments as CuratedDocuments,
    Mixture as Mixture,
    Part as Part,
    TableDocuments as TableDocuments,
)
from .livecodebench import LiveCodeBench as LiveCodeBench
from .preference_data import PreferenceDataModule as PreferenceDataModule
from .preferences import (
    Example as Example,
    PreferenceSource as PreferenceSource,
    TableLabels as TableLabels,
    TablePairs as TablePairs,
    TableSteps as TableSteps,
)
from .problem_tables import (
    ChoiceTable as ChoiceTable,
    CountdownTable as CountdownTable,
    TableProblems as TableProblems,
    TaskTable as TaskTable,
)
from .repositories import RepositoryTasks as RepositoryTasks
from .sources import (
    Document as Document,
    DocumentSource as DocumentSource,
    FewShot as FewShot,
    InEnvironment as InEnvironment,
    LateProblems as LateProblems,
    PassRates as PassRates,
    ProblemSource as ProblemSource,
    ReasoningGym as ReasoningGym,
)
from .taskset_tasks import TasksetTasks as TasksetTasks
