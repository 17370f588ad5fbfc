"""The data module: sources in, batches out.

Problems become ``PromptBatch``, documents ``PackedRows``, by the tokenizer of the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_warn
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem, Rollout
from r1lit.data.difficulty import Difficulty, DifficultySampler
from r1lit.data.loaders import (
    FixedSampler,
    GrowingSampler,
    PromptLoader,
    ResumableDataModule,
    RowLoader,
    Sampler,
    ShuffledSampler,
    divide,
)
from r1lit.data.packing import (
    EncodedDocument,
    LossOn,
    PackedDocuments,
    PromptLimit,
    TooLong,
    count_rows,
    encode_questions,
    pack_rows,
    show_first,
    warn_of_special_tokens,
)
from r1lit.data.protocols import Describes, HasTokenizer, LimitsContext
from r1lit.data.sources import (
    DocumentSource,
    FewShot,
    ProblemSource,
    check_beginnings,
    read_problems,
)
from r1lit.environments import ChatTurns, Environment, TurnFormat, TurnLimits
from r1lit.environments.exits import no_exit
from r1lit.errors import check_at_least, hint
from r1lit.groups import counting_groups
from r1lit.ranks import of_all_ranks
from r1lit.text.prompts import (
    CHAT,
    Conversation,
    literal_question,
    question_of,
    squeezed,
    turn_end,
)
from r1lit.text.special_tokens import literal

TooLongPrompt = Literal["error", "drop"]


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Settings of how a question becomes a prompt.

    Args:
        template: a name of ``r1lit.text.prompts`` (r1_zero, small_world, question_answer,
            plain), "chat" for
            the tokenizer's chat template, or a text that holds {question}.
        wording: put around the question before the template; it holds {question} and is no part of
            the problem.
        system_prompt: the system turn of the chat template, where a problem has none; empty for
            none.
        max_tokens: the most tokens of a prompt; null leaves the model's context as the limit.
        too_long: a problem with a longer prompt is an "error", or is left out ("drop") of ``train``
            and ``predict``. Of ``validation`` and ``test`` none is left out.
        special_tokens_in_questions: whether the texts of special tokens in questions of data are
            these tokens, as in questions that are templated already; else they are text.
    """

    template: str = "r1_zero"
    wording: str = "{question}"
    system_prompt: str = ""
    max_tokens: int | None = None
    too_long: TooLongPrompt = "error"
    special_tokens_in_questions: bool = False

    def __post_init__(self) -> None:
        _refuse_below_one("prompts", self, "max_tokens")
        if self.system_prompt and self.template != CHAT:
            raise ValueError(
                f"data.prompts.system_prompt: {self.system_prompt[:40]!r}, but template:"
                f" {self.template!r} has no system turn; template: chat has one"
            )

    def literal(self, tokenizer: PreTrainedTokenizerBase, value: Any) -> Any:
        """Return data as templates take it: special tokens' texts stay text, unless switched on.

        Args:
            tokenizer: whose special tokens.
            value: a question, or what tools are: texts in lists and mappings.
        """
        if self.special_tokens_in_questions:
            return value
        if isinstance(value, str | Conversation):
            return literal_question(tokenizer, value)
        return literal(tokenizer, value)

    def turn_end(self, tokenizer: PreTrainedTokenizerBase) -> int | None:
        """Return the token that ends a turn, of the chat template where that is in use."""
        return turn_end(tokenizer) if self.template == CHAT else None


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """Settings of the rollout of one training iteration.

    Args:
        prompts_per_iteration: P, prompts of an iteration, over all ranks.
        group_size: G, responses to each.
        num_reserve_prompts: further prompts of an iteration, for dynamic sampling.
    """

    prompts_per_iteration: int = 16
    group_size: int = 16
    num_reserve_prompts: int = 0

    def __post_init__(self) -> None:
        _refuse_below_one("rollout", self, "prompts_per_iteration", "group_size")
        key, remedy = "data.rollout.num_reserve_prompts", "0 keeps none in reserve"
        check_at_least(key, self.num_reserve_prompts, 0, remedy)


@dataclass(frozen=True, kw_only=True)
class PackingOptions:
    """Settings of how documents are packed into rows, and rows into updates.

    Args:
        max_seq_len: tokens of a row; documents are packed whole.
        train_batch_size: rows of an update, over all ranks; 16 where neither this is given nor
            ``documents_per_update``.
        documents_per_update: documents of an update in the mean, instead of its rows, of which it
            then takes as many as hold them: a paper's batch of documents, at its learning rate.
        loss_on: "response", or "all" for pretraining.
        too_long: a document longer than a row is an "error", or loses its end ("truncate").
    """

    max_seq_len: int = 1024
    train_batch_size: int | None = None
    documents_per_update: int | None = None
    loss_on: LossOn = "response"
    too_long: TooLong = "error"

    def __post_init__(self) -> None:
        counts = ("max_seq_len", "train_batch_size", "documents_per_update")
        _refuse_below_one("packing", self, *counts)
        if self.train_batch_size is not None and self.documents_per_update is not None:
            raise ValueError(
                f"data.packing.train_batch_size: {self.train_batch_size} rows are an update, and so"
                f" are documents_per_update: {self.documents_per_update}; set one of them to null"
            )

    @property
    def num_rows(self) -> int:
        """The rows of an update, over all ranks, where documents do not decide them."""
        return 16 if self.train_batch_size is None else self.train_batch_size

    def for_rows(self, packed: PackedDocuments, world_size: int) -> PackingOptions:
        """Return the options with the rows of an update that ``documents_per_update`` come to.

        Rows come out even over ranks: 128 documents, of which 1,000 lie in 160 rows, are 20 rows on
        one rank and 24 over eight.
        """
        if self.documents_per_update is None:
            return self
        rows = self.documents_per_update * len(packed.rows) / len(packed.documents)
        size = max(1, round(rows / world_size)) * world_size
        return replace(self, train_batch_size=size, documents_per_update=None)


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Settings of the rollouts of validation, test and prediction.

    Args:
        num_samples: k, responses to each problem.
        prompts_per_batch: the most problems rolled out together.
    """

    num_samples: int = 16
    prompts_per_batch: int = 64

    def __post_init__(self) -> None:
        _refuse_below_one("evaluation", self, *(field.name for field in fields(self)))


def _refuse_below_one(group: str, options: Any, *keys: str) -> None:
    for key in keys:
        count = getattr(options, key)
        check_at_least(f"data.{group}.{key}", count, 1)


class R1DataModule(ResumableDataModule[PromptLoader | RowLoader]):
    """Problems to roll out, documents to train on, or both.

    Reinforcement learning trains on the problems of ``train``: iteration i takes the next
    ``rollout.prompts_per_iteration`` of a shuffled pass, over all problems that have begun by then
    (``LateProblems``). Supervised training trains on ``documents``, shuffled once and packed whole
    into rows; an iteration is one update on ``packing.train_batch_size`` of them. Either may roll
    out ``validation`` problems while it trains. Batch i depends on ``seed`` and i alone.

    Args:
        train: sources of problems to train on by reinforcement learning.
        validation: sources of held-out problems, rolled out while training.
        test: sources of problems for ``r1lit test``.
        predict: sources of problems for ``r1lit predict``; those of ``train`` if left out.
        documents: sources of documents for supervised training.
        validation_documents: sources of held-out documents, for their loss.
        prompts: how a question becomes a prompt.
        environments: what problems may act in, by the names that they give (``InEnvironment``).
        turns: how turns stand in tokens, where there are environments.
        limits: of an episode of several turns.
        shots: solved problems that stand before each question.
        rollout: what one training iteration rolls out.
        difficulty: how prompts are chosen by the run's own pass rates; in shuffled passes over all
            of them if left out.
        packing: how documents are packed into rows, and rows into updates.
        evaluation: what validation, test and prediction roll out.
        num_iterations: iterations of an epoch, the next one continuing where it stopped; null is
            one pass over the problems or rows.
        allow_overlap: permit held-out problems that are also trained on, which is an error
            otherwise.
        seed: of every shuffle; the command line links it to ``seed_everything``.
    """

    def __init__(
        self,
        train: list[ProblemSource] | None = None,
        validation: list[ProblemSource] | None = None,
        test: list[ProblemSource] | None = None,
        predict: list[ProblemSource] | None = None,
        documents: list[DocumentSource] | None = None,
        validation_documents: list[DocumentSource] | None = None,
        prompts: PromptOptions = PromptOptions(),
        environments: dict[str, Environment] | None = None,
        turns: TurnFormat | None = None,
        limits: TurnLimits = TurnLimits(),
        shots: FewShot | None = None,
        rollout: RolloutOptions = RolloutOptions(),
        difficulty: Difficulty | None = None,
        packing: PackingOptions = PackingOptions(),
        evaluation: EvaluationOptions = EvaluationOptions(),
        num_iterations: int | None = None,
        allow_overlap: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if train and documents:
            raise ValueError(
                "data.train and data.documents are both given: train on problems (reinforcement"
                " learning) or on documents (supervised), and set the other to null"
            )
        if validation_documents and not documents:
            raise ValueError("data.validation_documents is given without data.documents")
        check_at_least("data.num_iterations", num_iterations, 1)
        self.problem_sources = {
            "train": train,
            "validation": validation,
            "test": test,
            "predict": predict or train,
        }
        self.document_sources = {"train": documents, "validation": validation_documents}
        self.prompts = prompts
        self.environments = environments or {}
        self.turns = turns or ChatTurns()
        self.limits = limits
        self.shots = shots
        self.rollout = rollout
        self.difficulty = difficulty
        self.packing = packing
        self.evaluation = evaluation
        self.num_iterations = num_iterations
        self.allow_overlap = allow_overlap
        self.seed = seed
        self.problems: dict[str, list[Problem]] = {}
        self.num_problems_from: dict[str, dict[int, int]] = {}
        self.dropped_problems: dict[str, list[Problem]] = {}
        self.prompt_ids: dict[str, list[tuple[int, ...]]] = {}
        self.documents: dict[str, list[EncodedDocument]] = {}
        self.rows: dict[str, list[list[int]]] = {}
        self.num_truncated = 0

    def setup(self, stage: str) -> None:
        """Read and tokenise what ``stage`` needs, once; a fit also reads the test problems."""
        stage = str(getattr(stage, "value", stage))  # Lightning's enumeration prints as itself
        if stage == "fit" and not (self.problem_sources["train"] or self.document_sources["train"]):
            raise ValueError(
                "data: nothing is given to fit: neither data.train (problems, for reinforcement"
                " learning) nor data.documents (for supervised training)"
            )
        if stage == "fit":
            self._train_loader = self._train_state = None
            self._check_shares()
        splits = {"fit": ["train", "validation"], "validate": ["validation"]}.get(stage, [stage])
        if not any(self.problem_sources[s] or self.document_sources.get(s) for s in splits):
            raise ValueError(f"data: nothing is given to {stage}: data.{splits[0]} is null")
        for split in splits:
            self._read_problems(split)
            self._check_environments(split)
            self._encode_problems(split)
            self._encode_documents(split)
        if stage == "fit" and not self.allow_overlap:
            self._check_contamination()
        prompts, documents = self.prompt_ids.get(splits[0], []), self.documents.get(splits[0], [])
        show_first(self._tokenizer(), prompts[:1], documents[:1])

    def _check_shares(self) -> None:
        """Check, before anything is read, that every rank has as much to train on."""
        num_ranks = self._process()["world_size"]
        if self.problem_sources["train"]:
            for key in ("prompts_per_iteration", "num_reserve_prompts"):
                divide(f"data.rollout.{key}", getattr(self.rollout, key), num_ranks)
        elif self.packing.documents_per_update is None:
            divide("data.packing.train_batch_size", self.packing.num_rows, num_ranks)

    def _check_contamination(self) -> None:
        if "train" in self.documents and "validation" in self.problems:
            refuse_contaminated_documents(
                self.documents["train"], self.problems["validation"], self.prompt_ids["validation"]
            )
        if "train" in self.problems:
            self._read_problems("test")
            for split in ("validation", "test"):
                refuse_contamination(self.problems["train"], self.problems.get(split, []), split)

    def val_dataloader(self) -> list[PromptLoader | RowLoader]:
        """Return the loaders of validation documents and of validation problems, those given."""
        loaders: list[PromptLoader | RowLoader] = []
        if "validation" in self.rows:
            size = len(self.rows["validation"])
            rows = FixedSampler(size, self.packing.num_rows, self._process()["world_size"])
            loaders.append(self._row_loader("validation", rows, None))
        if "validation" in self.problems:
            loaders.append(self._held_out_loader("validation"))
        return loaders

    def test_dataloader(self) -> PromptLoader:
        """Return the loader of test problems."""
        return self._held_out_loader("test")

    def predict_dataloader(self) -> PromptLoader:
        """Return the loader of the problems to sample responses to."""
        return self._held_out_loader("predict")

    def _make_train_loader(self) -> PromptLoader | RowLoader:
        if "train" in self.rows:
            size = len(self.rows["train"])
            rows = ShuffledSampler(size, self.packing.num_rows, self.seed)
            return self._row_loader("train", rows, self.num_iterations)
        num_iterations, max_epochs = self.num_iterations, getattr(self.trainer, "max_epochs", None)
        check_beginnings(self.num_problems_from["train"], num_iterations, max_epochs)
        num_reserve = self.rollout.num_reserve_prompts
        count = self.rollout.prompts_per_iteration + num_reserve
        problems, sizes = self.problems["train"], self.num_problems_from["train"]
        sampler: Sampler = GrowingSampler(sizes, count, self.seed)
        if self.difficulty is not None:
            sampler = DifficultySampler(problems, sizes, count, self.seed, self.difficulty)
        return PromptLoader(
            problems,
            self.prompt_ids["train"],
            sampler,
            group_size=self.rollout.group_size,
            num_reserve=num_reserve,
            num_batches=num_iterations,
            **self._process(),
        )

    def learn(self, iteration: int, rollouts: Sequence[Rollout]) -> dict[str, float]:
        """Count an iteration's outcomes, for ``difficulty``; all ranks call it.

        Groups that are left out, since a verdict did not come or an episode failed, say nothing
        of their problems.

        Args:
            iteration: whose they are.
            rollouts: all that were sampled, groups that are not trained on too.

        Returns:
            What to log.
        """
        own = [
            (response.problem.uid, response.verdict.status == "right")
            for rollout in rollouts
            for group, counts in zip(
                rollout.groups(), counting_groups(rollout).tolist(), strict=True
            )
            if counts
            for response in group
        ]
        outcomes: dict[str, tuple[int, int]] = {}
        for uid, right in (pair for rank in of_all_ranks(own) for pair in rank):
            before = outcomes.get(uid, (0, 0))
            outcomes[uid] = before[0] + right, before[1] + 1
        loader = self.train_dataloader()
        assert isinstance(loader, PromptLoader)
        return loader.learn(iteration, outcomes)

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        assert self.trainer is not None, "setup runs within a trainer"
        module = self.trainer.lightning_module
        if not isinstance(module, HasTokenizer) or module.tokenizer is None:
            raise ValueError(
                f"model: {type(module).__name__} has no tokenizer, and the data uses the model's"
            )
        if module.tokenizer.eos_token_id is None:
            raise ValueError(
                "model: its tokenizer has no eos_token, so no response could ever end; set one"
            )
        return module.tokenizer

    def _context(self) -> int | None:
        """Return the model's context length, or None if unknown."""
        assert self.trainer is not None
        module = self.trainer.lightning_module
        return module.context_length if isinstance(module, LimitsContext) else None

    def _read_problems(self, split: str) -> None:
        sources = self.problem_sources.get(split)
        if sources and split not in self.problems:
            self.problems[split], self.num_problems_from[split] = read_problems(sources, split)

    def _encode_problems(self, split: str) -> None:
        if split in self.problems and split not in self.prompt_ids:
            if not self.prompts.special_tokens_in_questions:
                questions = [question_of(problem) for problem in self.problems[split]]
                key = "data.prompts.special_tokens_in_questions"
                warn_of_special_tokens(self._tokenizer(), questions, f"data.{split}", key)
            openings = [self.opening(p, self.literal) for p in self.problems[split]]
            prompts = self._encode_openings(openings, split)
            if self.prompts.too_long == "drop" and split in ("train", "predict"):
                prompts = self._drop_longer(prompts, split)
            self.prompt_ids[split] = self._checked(prompts, split)

    def encode(self, openings: Sequence[str | Conversation], split: str) -> list[tuple[int, ...]]:
        """Return the prompts of questions, as those of the problems of ``split`` are made.

        What is of data in them went through ``literal``.

        Raises:
            ValueError: if one is longer than ``prompts.max_tokens`` or the model's context.
        """
        return self._checked(self._encode_openings(openings, split), split)

    def _encode_openings(
        self, openings: Sequence[str | Conversation], split: str
    ) -> list[tuple[int, ...]]:
        prompts = self.prompts_of(split, self.literal)
        return encode_questions(
            openings,
            self._tokenizer(),
            template=prompts.template,
            wording=prompts.wording,
            system_prompt=prompts.system_prompt,
        )

    def _prompt_limit(self) -> PromptLimit | None:
        return PromptLimit.of(self.prompts.max_tokens, self._context())

    def _checked(self, prompts: list[tuple[int, ...]], split: str) -> list[tuple[int, ...]]:
        if limit := self._prompt_limit():
            remedy = "shorten them, or leave them out of the data"
            if split in ("train", "predict"):
                remedy = "shorten them, or leave them out with data.prompts.too_long: drop"
            limit.check(prompts, split, remedy)
        return prompts

    def _drop_longer(self, prompts: list[tuple[int, ...]], split: str) -> list[tuple[int, ...]]:
        """Leave out the problems of ``split`` whose prompts are too long; return the others'."""
        limit, problems = self._prompt_limit(), self.problems[split]
        fits = [limit is None or len(prompt) <= limit.num_tokens for prompt in prompts]
        if limit is None or all(fits):
            return prompts
        if not any(fits):
            raise ValueError(
                f"data.{split}: all {len(prompts)} prompts are longer than {limit.num_tokens}"
                f" tokens ({limit.setting}), and too_long: drop leaves none"
            )
        self.dropped_problems[split] = [p for p, fit in zip(problems, fits, strict=True) if not fit]
        self.problems[split] = [p for p, fit in zip(problems, fits, strict=True) if fit]
        sizes = self.num_problems_from[split]
        self.num_problems_from[split] = {i: sum(fits[:count]) for i, count in sizes.items()}
        rank_zero_warn(
            f"data.{split}: {fits.count(False)} of {len(prompts)} problems are left out"
            f" (too_long: drop): their prompts are longer than {limit.num_tokens} tokens"
            f" ({limit.setting}); the first is {self.dropped_problems[split][0].uid!r}"
        )
        return [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit]

    def prompts_of(self, split: str, literal: Callable[[str], str] = str) -> PromptOptions:
        """Return how a question of ``split`` becomes a prompt, with the ``shots`` before it.

        Args:
            split: whose problems are asked, and so not shown.
            literal: what becomes of the questions and answers that are shown.
        """
        if self.shots is None:
            return self.prompts
        asked = [*self.problems[split], *self.dropped_problems.get(split, ())]
        before = self.shots.before(asked, self.seed, literal)
        return replace(self.prompts, wording=before + self.prompts.wording)

    def literal(self, value: Any) -> Any:
        """Return data as templates take it; see ``PromptOptions.literal``."""
        return self.prompts.literal(self._tokenizer(), value)

    def opening(
        self, problem: Problem, literal: Callable[[Any], Any] = lambda value: value
    ) -> str | Conversation:
        """Return the text or turns of a prompt, with the tools of the problem's environment.

        Args:
            problem: that is asked.
            literal: what becomes of its data; the turn format's own text is not data.
        """
        if not problem.environment:
            return literal(question_of(problem))
        environment = self.environments[problem.environment]
        with no_exit(f"data.environments: {problem.environment!r}"):
            opening = literal(environment.opening(problem))
            tools = literal(list(environment.tools_of(problem)))
        return self.turns.opening(opening, tools, self.prompts.system_prompt)

    def _check_environments(self, split: str) -> None:
        """Check, before weights are loaded, what turns need of problems and tokenizer."""
        names = {problem.environment for problem in self.problems.get(split, ())} - {""}
        for name in sorted(names):
            if name not in self.environments:
                raise ValueError(
                    f"data.environments: a problem of data.{split} names {name!r}"
                    f"{hint(name, self.environments)}"
                )
            tools = self.environments[name].tools
            self.turns.check(self._tokenizer(), self.prompts.template, tools)

    def teardown(self, stage: str) -> None:
        """Release the resources that environments have started."""
        for environment in self.environments.values():
            environment.close()

    def _encode_documents(self, split: str) -> None:
        sources = self.document_sources.get(split)
        if not sources or split in self.rows:
            return
        texts = [document for source in sources for document in source.documents()]
        if not texts:
            raise ValueError(f"data: the document sources of {split} yield no documents")
        packed = pack_rows(
            texts,
            self._tokenizer(),
            max_seq_len=self.packing.max_seq_len,
            too_long=self.packing.too_long,
            context=self._context(),
            shuffle_seed=self.seed if split == "train" else None,
            show_progress=self.trainer is not None and self.trainer.is_global_zero,
        )
        self.documents[split], self.rows[split] = packed.documents, packed.rows
        if split == "train":
            self.packing = self.packing.for_rows(packed, self._process()["world_size"])
        self.num_truncated += packed.num_truncated

    def _held_out_loader(self, split: str) -> PromptLoader:
        size = len(self.problems[split])
        return PromptLoader(
            self.problems[split],
            self.prompt_ids[split],
            FixedSampler(size, self.evaluation.prompts_per_batch, self._process()["world_size"]),
            group_size=self.evaluation.num_samples,
            **self._process(),
        )

    def _row_loader(self, split: str, sampler: Sampler, num_batches: int | None) -> RowLoader:
        tokenizer = self._tokenizer()
        pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
        return RowLoader(
            self.documents[split],
            self.rows[split],
            sampler,
            max_seq_len=self.packing.max_seq_len,
            pad_id=eos if pad is None else pad,
            loss_on=self.packing.loss_on,
            num_batches=num_batches,
            **self._process(),
        )

    def describe(self) -> dict[str, Any]:
        """Return the batch plan: the data read, and its layout in batches.

        ``train_fill`` is the share of the rows' slots that hold tokens of documents.
        """
        plan: dict[str, Any] = {"seed": self.seed, **asdict(self.prompts)}
        for split, problems in self.problems.items():
            plan[f"num_{split}_problems"] = dict(Counter(p.source for p in problems))
        for split, dropped in self.dropped_problems.items():
            plan[f"num_dropped_{split}_problems"] = len(dropped)
        for split, prompts in self.prompt_ids.items():
            plan[f"longest_{split}_prompt"] = max(map(len, prompts))
        if "train" in self.problems:
            plan |= asdict(self.rollout)
            plan["num_problems_from_iteration"] = self.num_problems_from["train"]
        for split, documents in self.documents.items():
            length, loss_on = self.packing.max_seq_len, self.packing.loss_on
            counts = count_rows(documents, self.rows[split], length, loss_on)
            plan |= {f"{split}_{key}": value for key, value in counts.items()}
        sources = self.document_sources["train"] or []
        mixtures = [s.describe() for s in sources if isinstance(s, Describes)]
        plan |= {"mixtures": mixtures} if mixtures else {}
        if self.documents:
            plan |= {**asdict(self.packing), "train_batch_size": self.packing.num_rows}
            plan["num_truncated_documents"] = self.num_truncated
        if "train" in self.prompt_ids or "train" in self.rows:
            plan["num_iterations"] = len(self.train_dataloader())
        return plan


def refuse_contamination(train: Sequence[Problem], held_out: Sequence[Problem], key: str) -> None:
    """Check that no held-out problem is trained on, by uid or by the words of its question.

    White space does not count. ``key`` names the held-out problems in the configuration.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    uids = {problem.uid for problem in train}
    questions = {squeezed(problem.question): problem.uid for problem in train}
    by_uid = [problem for problem in held_out if problem.uid in uids]
    if by_uid:
        raise ValueError(
            f"contamination: {len(by_uid)} of {len(held_out)} problems of data.{key} have the uid"
            f" of a training problem, the first {by_uid[0].uid!r}; allow_overlap: true permits it"
        )
    by_text = [problem for problem in held_out if squeezed(problem.question) in questions]
    if by_text:
        first = by_text[0]
        raise ValueError(
            f"contamination: {len(by_text)} of {len(held_out)} problems of data.{key} ask a"
            f" question that is trained on, the first {first.uid!r}, in training"
            f" {questions[squeezed(first.question)]!r}; allow_overlap: true permits it"
        )


def refuse_contaminated_documents(
    documents: Sequence[EncodedDocument],
    held_out: Sequence[Problem],
    prompts: Sequence[tuple[int, ...]],
) -> None:
    """Check that no validation prompt is the prompt of a training document, token by token.

    The same question in another template is not recognised.

    Raises:
        ValueError: if one is, saying how many and naming the first.
    """
    trained = {tuple(d.tokens[: d.num_prompt_tokens].tolist()) for d in documents}
    found = [
        problem for problem, prompt in zip(held_out, prompts, strict=True) if prompt in trained
    ]
    if found:
        raise ValueError(
            f"contamination: {len(found)} of {len(held_out)} problems of data.validation have"
            f" the prompt of a document in data.documents, the first {found[0].uid!r};"
            " allow_overlap: true permits it"
        )
