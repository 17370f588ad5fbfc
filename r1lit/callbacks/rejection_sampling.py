"""Rejection sampling: curates the responses that ``r1lit predict`` generated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
from lightning.pytorch import Callback

from r1lit.batches import Problem
from r1lit.curation import (
    R1_TEMPLATE,
    Context,
    Correct,
    Curation,
    Filter,
    Finished,
    Refiner,
    ResponseTemplate,
    curate,
)
from r1lit.curation.card import one_line, write_card
from r1lit.data import R1DataModule
from r1lit.environments import ChatTurns
from r1lit.evaluation.run_folder import RunFolder, commit, versions
from r1lit.files import remove
from r1lit.protocols import SamplesResponses, WritesResponses
from r1lit.text.prompts import Conversation

FILES = ("card.json", "card.md", "lengths.png", "sft.jsonl", "dropped.jsonl")


class RejectionSampling(Callback):
    r"""Curates the graded responses of ``EvaluationModule``, at the end of ``r1lit predict``.

    R1's cold start (arXiv 2501.12948v1, Sec. 2.3.1) and its rejection sampling (Sec. 2.3.3). The
    first ``data.evaluation.num_samples`` responses to each problem of ``data.predict`` go through
    ``filters``; those left are rewritten by ``refiners``, graded again, and those whose text
    changed go once more through the filters with ``again`` (`r1lit.curation.Filter`); then through
    ``final_filters``. Every response is written to one of two files in ``dirpath``:

    sft.jsonl      uid, sample, source, kind, language, prompt (the question), thinking, summary,
                   response (the text to train on), num_tokens (of it, with EOS); of an episode
                   messages, tools and answer (such as a patch) in place of prompt to response
    dropped.jsonl  uid, sample, source, kind, language, stage (generated, refined or final), filter,
                   why, num_tokens as generated, and the text it was dropped with, shortened

    ``card.json`` and ``card.md`` say how many of which kind were kept and what dropped the others;
    ``lengths.png`` shows their lengths. The same responses give the same bytes.

    Args:
        filters: applied in order to responses as generated; right and finished ones if left out.
        refiners: rewrite what is left, in order.
        final_filters: applied in order to responses as they are written.
        response_template: of the responses to train on.
        cut: texts of which the first to be found ends a response, such as ``"\nQuestion:"`` after
            few-shot prompting of a base model; what is left is graded again.
        dirpath: where the files go; the evaluation's folder if left out.
        seed: of every choice; the evaluation's if left out.
    """

    def __init__(
        self,
        filters: list[Filter] | None = None,
        refiners: list[Refiner] | None = None,
        final_filters: list[Filter] | None = None,
        response_template: ResponseTemplate = R1_TEMPLATE,
        cut: Sequence[str] = (),
        dirpath: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.curation = Curation(
            filters=[Finished(), Correct()] if filters is None else filters,
            refiners=refiners or (),
            final_filters=final_filters or (),
            response_template=response_template,
            cut=cut,
        )
        self.dirpath = dirpath
        self.seed = seed
        self.card: dict[str, Any] | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check that the module writes responses, and have filters read what they need.

        Raises:
            ValueError: if the module writes no responses to a folder, or a filter's data are
                missing.
        """
        if stage == "predict" and not isinstance(pl_module, WritesResponses):
            raise ValueError(
                f"callbacks: RejectionSampling curates what r1lit.modules.EvaluationModule"
                f" generated, and the model is {type(pl_module).__name__}"
            )
        for each in (*self.curation.filters, *self.curation.final_filters):
            if stage == "predict" and trainer.is_global_zero:
                each.read()

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Curate, on rank 0.

        Raises:
            ValueError: if no response is left to train on.
        """
        if trainer.is_global_zero:
            self._curate(trainer, cast(SamplesResponses, pl_module))
        trainer.strategy.barrier("RejectionSampling")
        if self.card is not None and self.card["num_drawn"] and not self.card["num_kept"]:
            most = max(self.card["losses"], key=lambda loss: loss["dropped"])
            raise ValueError(
                f"callbacks: RejectionSampling kept 0 of {self.card['num_drawn']} responses;"
                f" {most['filter']} dropped {most['dropped']} of them. card.md and dropped.jsonl"
                " say why; take easier problems, a better policy, or other filters"
            )

    def _curate(self, trainer: pl.Trainer, module: SamplesResponses) -> None:
        data = trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, R1DataModule), "the evaluation has checked it"
        run: RunFolder = module.folder
        folder = Path(self.dirpath) if self.dirpath else run.path
        seed = module.seed if self.seed is None else self.seed
        for name in FILES[:3]:  # a card of another run does not describe what is written now
            remove(folder / name)
        with trainer.precision_plugin.predict_step_context():
            stats = curate(
                self.curation,
                run.responses.path,
                data.problems["predict"],
                data.evaluation.num_samples,
                module.grader,
                Context(
                    seed=seed,
                    folder=folder,
                    model=module.model_spec(),
                    opening=partial(_opening, data),
                ),
                show_progress=True,
            )
        settings = {
            "evaluation": json.loads((run.path / "settings.json").read_text()),
            "template": data.prompts.template,
            "k": data.evaluation.num_samples,
            "filters": [f.describe() for f in self.curation.filters],
            "refiners": [r.describe() for r in self.curation.refiners],
            "final_filters": [f.describe() for f in self.curation.final_filters],
            "response_template": asdict(self.curation.response_template),
            "cut": list(self.curation.cut),
            "seed": seed,
            "commit": commit(),
            "versions": versions(),
        }
        self.card = write_card(folder, stats, settings)
        print(one_line(self.card))


def _opening(data: R1DataModule, problem: Problem) -> Conversation:
    """Return the conversation that an episode of a problem began with.

    Raises:
        ValueError: if its turns are no messages of a chat template.
    """
    if not isinstance(data.turns, ChatTurns):
        raise ValueError(
            f"callbacks: RejectionSampling writes episodes as conversations, and data.turns is"
            f" {type(data.turns).__name__}; set it to r1lit.environments.ChatTurns"
        )
    opening = data.opening(problem)
    if not isinstance(opening, Conversation):
        opening = Conversation.of([{"role": "user", "content": opening}])
    return opening.after(data.prompts.system_prompt)
