"""Protocols by which modules and data modules, perhaps a user's own, are asked.

Those of modules have methods and attributes of a class alone: a tensor or a model of an instance
is not seen by ``isinstance`` from Python 3.12 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PretrainedConfig

    from r1lit.batches import Rollout, TokenValues
    from r1lit.data.datamodule import PromptOptions
    from r1lit.data.difficulty import Difficulty
    from r1lit.environments import Environment, TurnFormat, TurnLimits
    from r1lit.evaluation.run_folder import RunFolder
    from r1lit.objectives import Objective
    from r1lit.policy.adapter import Adapter
    from r1lit.policy.policy import ModelWrapper
    from r1lit.problems import Problem
    from r1lit.rewards import RewardFunction
    from r1lit.rollout import Sampling
    from r1lit.rollout.engine import ModelSpec
    from r1lit.verifiers.base import Grader


class TrainsPolicy(Protocol):
    """A module with a policy that is trained, as updates ask it; for annotations alone."""

    policy: Any
    reference: Any
    reference_in_loss: bool
    iteration: Tensor

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that is trained alone, if there is one."""

    @property
    def trainer(self) -> Any:
        """Lightning's trainer of the run."""

    def children(self) -> Iterator[nn.Module]:
        """Return the models that it holds."""


@runtime_checkable
class HasPolicyConfig(Protocol):
    """A module that knows its policy's configuration, perhaps before any weights are loaded."""

    policy_config: PretrainedConfig


@runtime_checkable
class CountsUpdates(Protocol):
    """A module that may make several updates in an iteration."""

    updates_per_iteration: int


@runtime_checkable
class MayGenerateAhead(Protocol):
    """A module that may train on responses generated before the last update."""

    @property
    def is_fresh(self) -> bool:
        """True if responses are of the weights before this update."""


@runtime_checkable
class RollsOut(Protocol):
    """A module that trains on rollouts, and computes values of their first tokens."""

    num_token_rows: int
    sampling: Sampling

    def first_token_values(self, rollout: Rollout, sampling: Sampling) -> dict[str, TokenValues]:
        """Return the training forward's values of the first ``num_token_rows`` responses."""


@runtime_checkable
class HasRewards(Protocol):
    """A module with reward functions, for training or for evaluation alone."""

    rewards: Sequence[RewardFunction]


@runtime_checkable
class LearnsFromRewards(HasRewards, Protocol):
    """A module that trains on rewards of sampled responses."""

    objective: Objective
    sampling: Sampling
    max_tokens_from: Mapping[int, int]


@runtime_checkable
class RefreshesReference(Protocol):
    """A module that may keep a reference policy, ``reference``."""

    def refresh_reference(self) -> None:
        """Replace the reference by the policy."""


@runtime_checkable
class Exports(Protocol):
    """A module with models to write at the end of a run."""

    def exported(self) -> dict[str, ModelWrapper]:
        """Return its models by their names, the policy's being ``policy``."""


@runtime_checkable
class HasProblems(Protocol):
    """A data module with problems, by split, and the tokens of their prompts."""

    problems: Mapping[str, Sequence[Problem]]
    prompt_ids: Mapping[str, Sequence[Sequence[int]]]
    prompts: PromptOptions


@runtime_checkable
class HasEnvironments(Protocol):
    """A data module whose problems may be acted on in environments, by name."""

    environments: Mapping[str, Environment]
    turns: TurnFormat
    limits: TurnLimits


@runtime_checkable
class HasDocuments(Protocol):
    """A data module with sources of documents, by split."""

    document_sources: Mapping[str, Any]


@runtime_checkable
class LearnsPassRates(Protocol):
    """A data module that may choose prompts by what a run has sampled."""

    difficulty: Difficulty | None

    def learn(self, iteration: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Take an iteration's rollouts; return numbers to log."""


@runtime_checkable
class LabelsSteps(Protocol):
    """A data module whose examples may have a label for each step."""

    labels_steps: bool


@runtime_checkable
class CountsIterations(Protocol):
    """A data module whose epoch may be a number of iterations."""

    num_iterations: int | None


@runtime_checkable
class WritesResponses(Protocol):
    """A module that writes responses to a run's folder."""

    folder: RunFolder


@runtime_checkable
class RunsSuites(Protocol):
    """A module that evaluates suites: what judges responses, and the folder that it was given."""

    judge: Callable[[str], str] | None
    dirpath: str | None


class SamplesResponses(WritesResponses, Protocol):
    """A module that samples and grades them; for annotations alone."""

    seed: int
    grader: Grader

    def model_spec(self) -> ModelSpec:
        """Return the model that an engine generates with."""


@runtime_checkable
class MayChange(Protocol):
    """A data module that may be another one's after a resume, if that is asked for."""

    accepts_changed_data: bool


@runtime_checkable
class ReportsRewards(Protocol):
    """A module that has a report of its reward model's newest evaluation."""

    reward_report: dict[str, Any] | None
