"""Evaluation as R1 reports it: k responses a problem, streamed to disk, and one table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from lightning.pytorch import LightningModule
from tqdm.auto import tqdm

from r1lit.batches import PromptBatch
from r1lit.device import inference_dtype
from r1lit.evaluation.records import as_markdown, merged, summarise
from r1lit.evaluation.run_folder import (
    ResponseWriter,
    RunFolder,
    Ungraded,
    commit,
    device_name,
    versions,
)
from r1lit.evaluation.suites.judged import known_agreement
from r1lit.evaluation.suites.table import as_table, summary
from r1lit.files import defined, replace_file, replace_json
from r1lit.modules.device_settings import DeviceSettings
from r1lit.modules.suites import Part, SuiteData
from r1lit.policy import (
    ModelSource,
    Policy,
    context_length,
    load_config,
    load_policy,
    load_tokenizer,
)
from r1lit.policy.source import policy_fingerprint
from r1lit.problems import Problem
from r1lit.rewards import Format, LanguageConsistency, RewardFunction, check_rewards
from r1lit.rollout import Completion, InProcessEngine, ModelSpec, Request, RolloutEngine, Sampling
from r1lit.rollout.episodes import with_environments
from r1lit.search import Query, Search
from r1lit.text.prompts import CHAT
from r1lit.verifiers import DefaultVerifiers, Grader, check_gold_answers
from r1lit.verifiers.generative import Model

R1_SAMPLING = Sampling(temperature=0.6, top_p=0.95, max_tokens=32768)
"""DeepSeek-R1, evaluation: temperature 0.6, top-p 0.95, 32,768 tokens."""
MAX_ROWS = 256
"""Number of responses that decode at a time in this process, where no engine is named."""


class EvaluationModule(LightningModule):
    """Generates, grades and reports; `r1lit test` runs it on the problems of ``data.test``.

    A response is a function of (seed, problem, sample), whatever else is generated, and is
    written to ``responses.jsonl`` with its verdict when it ends. Run again after an interruption,
    only the missing responses are generated; so it is when ``data.evaluation.num_samples`` (k) or
    the number of problems is raised. At the end ``report.json`` and ``report.md`` are written
    (`r1lit.evaluation.records`). `r1lit predict` does the same on ``data.predict``.

    With `SuiteData` each suite has a folder of its own, and ``report.md`` is the table of all.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub; or a mapping of
            ``path`` and of how its weights are stored, `r1lit.policy.ModelSource`. With a server
            engine its tokenizer and configuration are read, and its weights are not.
        dirpath: the folder of this evaluation; the run folder (``run``) if left out.
        suite: its name, for the tables; those of the problems' sources if left out.
        sampling: how responses are sampled; R1's protocol if left out.
        engine: generates them; in this process, 256 at a time, if left out.
        search: makes each response by a search of its own, `r1lit.search`; sampled if left out.
        grader: decides about them.
        eval_metrics: reward functions whose means are reported; R1-Zero's format and language
            consistency if left out, unless a chat template is used and no response thinks in tags.
        by: keys of the problems' meta to report pass@1 by, such as ``level``.
        rating: the key of a problem's Codeforces rating, to report an Elo estimate.
        judge: any callable from prompt to reply, as ``r1lit.endpoint.ServedModel``, which grades
            the suites that need one.
        seed: of responses and intervals; the command line links it to ``seed_everything``.
    """

    policy: Policy | None

    def __init__(
        self,
        policy: str | ModelSource,
        dirpath: str | None = None,
        suite: str | None = None,
        sampling: Sampling = R1_SAMPLING,
        engine: RolloutEngine | None = None,
        search: Search | None = None,
        grader: Grader | None = None,
        eval_metrics: list[RewardFunction] | None = None,
        by: list[str] | None = None,
        rating: str | None = None,
        judge: Model | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = ModelSource.frozen(policy, "policy")
        self.policy_config = load_config(self.source)
        self.tokenizer = load_tokenizer(self.source)
        self.suite = suite
        self.sampling = sampling
        self.engine = engine or InProcessEngine(max_rows=MAX_ROWS)
        self.search = search
        self.grader = grader or Grader(DefaultVerifiers(last_expression=True))
        self._own_metrics = eval_metrics is None
        self.eval_metrics = (
            [Format(), LanguageConsistency()] if eval_metrics is None else eval_metrics
        )
        if self.eval_metrics:
            check_rewards(self.eval_metrics)
        self.by = list(by or ())
        self.rating = rating
        self.judge = judge
        self.policy = None
        self.seed = seed
        self.dirpath = dirpath
        self._folder: RunFolder | None = None
        self._parts: list[Part] = []
        self.report: dict[str, Any] | None = None

    @property
    def context_length(self) -> int | None:
        """The most tokens the policy attends over, if its configuration has a limit."""
        return context_length(self.policy_config)

    @property
    def folder(self) -> RunFolder:
        """Where the evaluation writes: ``dirpath``, or the run folder."""
        if self._folder is None:
            self._folder = RunFolder(self.dirpath, self.trainer.default_root_dir)
        return self._folder

    def configure_callbacks(self) -> list[DeviceSettings]:
        """Return the callback that sets the run's process up for its device."""
        return [DeviceSettings()]

    def setup(self, stage: str) -> None:
        """Check everything that can be checked before a response is generated."""
        if stage not in ("test", "predict"):
            raise ValueError(
                f"model: EvaluationModule generates and grades: test or predict, not {stage}"
            )
        if self.trainer.num_nodes > 1:
            raise ValueError(
                f"trainer.num_nodes: {self.trainer.num_nodes}; an evaluation runs on one machine,"
                " whose ranks add lines to one file; the engine's servers may be on others"
            )
        device = self.trainer.strategy.root_device
        self.source = self.source.but(dtype=self.source.dtype or inference_dtype(device))
        _ = self.folder  # refuses to have none
        data = self._data()
        if not isinstance(data, SuiteData):
            split = self._split()
            self._parts = [
                Part(
                    name=self.suite or _named_by_sources(data.problems[split]),
                    problems=data.problems[split],
                    prompts=data.prompt_ids[split],
                    num_samples=data.evaluation.num_samples,
                    by=self.by,
                    rating=self.rating,
                    folder=self.folder,
                )
            ]
            self._check(self._parts[0], f"data.{split}")
            return
        for part in list(data.parts):
            assert part.suite is not None
            try:
                if part.suite.grader is not None:
                    own = part.suite.verifier or part.suite.judged_by(self.judge)
                    self.grader.verifiers[part.name] = own
                self._check(part, f"suites.{part.name}")
            except (ValueError, ImportError) as error:
                data.skip_suite(part.name, str(error))
        data.check_some_left()
        self._parts = data.parts

    def _check(self, part: Part, key: str) -> None:
        """Check that the responses to a part's problems can be generated and graded."""
        uids: set[str] = set()
        for problem in part.problems:
            if problem.uid in uids:
                raise ValueError(f"{key}: two problems have the uid {problem.uid!r}")
            uids.add(problem.uid)
        for meta in part.keys:
            if not any(meta in problem.meta for problem in part.problems):
                raise ValueError(f"by: no problem of {key} has {meta!r} in its meta")
        longest = max(map(len, part.prompts))
        self.sampling.check_context(longest, self.context_length)
        self.engine.check(self.model_spec(), longest, self.sampling.max_tokens)
        if self.search is not None:
            self.search.check(self.engine, self.sampling, self.tokenizer)
        self._playing_engine()
        if self.search is not None and any(problem.environment for problem in part.problems):
            raise ValueError("search: it makes responses of one turn; set it to null")
        check_gold_answers(self.grader, part.problems, key)

    def configure_model(self) -> None:
        """Load the policy, once, where the engine needs it, and bind the engine to it."""
        if self._decodes_here and self.policy is None:
            self.policy = load_policy(self.source).eval()
        self.engine.bind(self.model_spec())
        if self.search is None and not self._data().environments:
            num_responses = sum(len(part.problems) * part.num_samples for part in self._parts)
            self.engine.expect_at_most(num_responses, self.sampling.max_tokens)

    def model_spec(self) -> ModelSpec:
        """Return the model that the responses are of."""
        return ModelSpec(
            name=self.source.path,
            tokenizer=self.tokenizer,
            policy=self.policy,
            config=self.policy_config,
            turn_end=self._data().prompts.turn_end(self.tokenizer),
        )

    @property
    def _decodes_here(self) -> bool:
        return self.engine.capabilities.needs_policy

    def _playing_engine(self) -> RolloutEngine:
        data = self._data()
        return with_environments(self.engine, data.environments, data.turns, data.limits)

    def _split(self) -> str:
        return "test" if self.trainer.testing else "predict"

    def _data(self) -> Any:
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if data is None:
            raise ValueError("data: an evaluation needs a data module, r1lit.data.R1DataModule")
        return data

    def _settings(self, name: str) -> dict[str, Any]:
        """Return the settings that decide responses of a part; prompts are checked one by one."""
        return {
            "suite": name,
            "policy": self.source.path,
            "fingerprint": policy_fingerprint(self.source.path),
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "seed": self.seed,
            **self.engine.describe(),
            **({} if self.search is None else {"search": self.search.describe()}),
            **({k: str(v) for k, v in self.source.options.items()} if self._decodes_here else {}),
        }

    # generating

    def on_test_start(self) -> None:
        """Open the folders and see what they hold."""
        for part in self._parts:
            if self.trainer.is_global_zero:
                part.folder.open(self._settings(part.name))
        self.trainer.strategy.barrier("EvaluationModule.open")
        for part in self._parts:
            prompts = zip(part.problems, part.prompts, strict=True)
            part.done = part.folder.done({problem.uid: _digest(p) for problem, p in prompts})

    def test_step(self, batch: PromptBatch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Generate, grade and write the responses to these problems that are not there yet."""
        part = self._parts[dataloader_idx]
        missing = {
            row: [g for g in range(batch.group_size) if g not in part.done.get(problem.uid, ())]
            for row, problem in enumerate(batch.problems[: batch.num_prompts])
        }
        missing_samples = [(row, g) for row, samples in missing.items() for g in samples]
        total = batch.num_prompts * batch.group_size
        bar = tqdm(
            total=total,
            initial=total - len(missing_samples),
            desc=part.name,
            unit="response",
            disable=not self.trainer.is_global_zero,
        )
        queries = [
            Query(
                problem=batch.problems[row],
                prompt=batch.prompts[row],
                sample=sample_name(batch.problems[row], g),
            )
            for row, g in missing_samples
        ]

        def ungraded(
            index: int, completion: Completion, search: Mapping[str, float] | None
        ) -> Ungraded:
            query = queries[index]
            return Ungraded(
                problem=query.problem,
                sample=missing_samples[index][1],
                prompt=_digest(query.prompt),
                completion=completion,
                groups={key: query.problem.meta.get(key) for key in part.keys},
                search=search,
            )

        responses, metrics = part.folder.responses, self.eval_metrics
        with bar, ResponseWriter(responses, self.grader, metrics, self.tokenizer, bar) as writer:
            stream_responses(
                queries,
                engine=self._playing_engine(),
                search=self.search,
                sampling=self.sampling,
                seed=self.seed,
                on_found=lambda *found: writer.add(list(map(ungraded, *found))),
            )

    # reporting

    def on_test_epoch_end(self) -> None:
        """Write the reports and print the table."""
        self.trainer.strategy.barrier("EvaluationModule.report")
        for part in self._parts:
            part.report = self._report(part)
            if self.trainer.is_global_zero:
                table = as_markdown(part.report, f"{part.name}: {self.source.path}")
                part.folder.write_report(part.report, table)
        data = self._data()
        if not isinstance(data, SuiteData):
            self.report = self._parts[0].report
            self._log_report(self.report)
            files = "report.json, report.md, responses.jsonl"
        else:
            reports = {part.name: part.report for part in self._parts}
            self.report = summary(
                data.suites, reports, data.absent, self._settings("all"), data.notes
            )
            if self.trainer.is_global_zero:
                table = as_table(self.report, f"Suites: {self.source.path}")
                replace_json(self.folder.path / "report.json", self.report)
                replace_file(self.folder.path / "report.md", table.encode())
            files = "report.json, report.md, and a folder a suite"
        if self.trainer.is_global_zero:
            print(f"{table}\n{self.folder.path}: {files}")

    def _report(self, part: Part) -> dict[str, Any]:
        """Return the report of a part, from the lines in its folder."""
        groups = merged(part.folder.groups(part.problems, part.num_samples))
        report = summarise(
            groups,
            settings={
                **self._settings(part.name),
                "template": self._data().prompts.template,
                "k": len(next(iter(groups.values()))),
                "commit": commit(),
                "versions": versions(),
                "device": device_name(self.device) if self._decodes_here else "server",
            },
            group_by=part.by,
            rating=part.rating,
            seed=self.seed,
        )
        if self._own_metrics and self._data().prompts.template == CHAT:
            # no prompt asked for tags: without any there is no format or thinking to measure
            thinks = any("think>" in r["response"] for group in groups.values() for r in group)
            report["eval_metrics"] = report["eval_metrics"] if thinks else {}
        if part.suite is not None:
            report["score"] = defined(part.suite.report(groups, self.seed, part.problems))
            if labelled := self._data().labelled(part.suite):
                judge, kept = self.grader.verifiers[part.name], part.folder.path / "agreement.json"
                if self.trainer.is_global_zero:  # the others read what it wrote
                    known_agreement(judge, labelled, part.name, kept)
                self.trainer.strategy.barrier("EvaluationModule.agreement")
                report["agreement"] = known_agreement(judge, labelled, part.name, kept)
        return report

    def _log_report(self, report: dict[str, Any]) -> None:
        if self.trainer.testing:
            counts = report["verdicts"]
            self.log("test/pass_at_1", float(report["pass_at_1"]["value"]))
            for status in ("timeout", "error"):
                self.log(f"test/verifier/{status}", counts[status] / sum(counts.values()))

    def predict_step(self, batch: PromptBatch, batch_idx: int) -> int:
        """Run ``test_step`` for rejection sampling; return the batch's number of problems."""
        self.test_step(batch, batch_idx)
        return batch.num_prompts

    on_predict_start = on_test_start
    on_predict_epoch_end = on_test_epoch_end

    def teardown(self, stage: str) -> None:
        """Let the verifiers' worker processes and the folder go."""
        self.grader.close()
        self.engine.close()
        if self.search is not None:
            self.search.close()
        for part in self._parts:
            part.folder.close()


def _named_by_sources(problems: Sequence[Problem]) -> str:
    """Return the names of the problems' sources, or of many how many there are."""
    sources = list(dict.fromkeys(problem.source for problem in problems))
    return ", ".join(sources) if len(sources) <= 3 else f"{len(sources)} sources"


def _digest(prompt: Sequence[int]) -> str:
    return hashlib.blake2b(repr(tuple(prompt)).encode(), digest_size=6).hexdigest()


SAMPLES_A_PROBLEM = 1 << 16
SEARCHES = 64
"""Number of searches that run together; an interrupted command makes them again."""
Summaries = Sequence[Mapping[str, float] | None]
OnFound = Callable[[Sequence[int], Sequence[Completion], Summaries], None]
"""Takes indices of queries, their responses, and the numbers of the searches if any."""


def stream_responses(
    queries: Sequence[Query],
    *,
    engine: RolloutEngine,
    search: Search | None,
    sampling: Sampling,
    seed: int,
    on_found: OnFound,
) -> None:
    """Make one response a query, and call ``on_found`` once with each."""
    if search is None:
        groups = (list(own) for _, own in groupby(queries, key=lambda query: query.problem.uid))
        engine.stream(
            [
                Request(
                    prompt=own[0].prompt,
                    samples=tuple(query.sample for query in own),
                    sampling=sampling,
                    seed=seed,
                    problem=own[0].problem,
                )
                for own in groups
            ],
            lambda indices, completions: on_found(indices, completions, [None] * len(indices)),
        )
        return
    for start in range(0, len(queries), SEARCHES):
        results = search.run(queries[start : start + SEARCHES], engine, sampling, seed)
        on_found(
            range(start, start + len(results)),
            [result.chosen.response.completion() for result in results],
            [result.summary() for result in results],
        )


def sample_name(problem: Problem, g: int) -> int:
    """Return a sample index unique to problem and ``g``, whatever other problems there are."""
    digest = hashlib.blake2b(problem.uid.encode(), digest_size=5).digest()
    return int.from_bytes(digest, "big") * SAMPLES_A_PROBLEM + g
