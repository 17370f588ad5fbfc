"""The batch plan in numbers: what a data module has read, and how it lays it out in batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from r1lit.data.packing import count_rows

if TYPE_CHECKING:
    from r1lit.data.datamodule import R1DataModule


def describe(data: R1DataModule) -> dict[str, Any]:
    """Return problems by source, P, G and the reserve, or documents, tokens, targets and rows.

    ``train_fill`` is the fraction of the rows' slots that hold tokens of documents.
    """
    plan: dict[str, Any] = {"seed": data.seed, "template": data.prompts.template}
    if data.prompts.wording != "{question}":
        plan["wording"] = data.prompts.wording
    for split, problems in data.problems.items():
        plan[f"num_{split}_problems"] = dict(Counter(p.source for p in problems))
    for split, prompts in data.prompt_ids.items():
        plan[f"longest_{split}_prompt"] = max(map(len, prompts))
    if "train" in data.problems:
        plan |= asdict(data.rollout)
    for split, documents in data.documents.items():
        counts = count_rows(
            documents, data.rows[split], data.packing.max_seq_len, data.packing.loss_on
        )
        plan |= {f"{split}_{key}": value for key, value in counts.items()}
    mixtures = [
        s.describe() for s in data.document_sources["train"] or () if hasattr(s, "describe")
    ]
    if mixtures:
        plan["mixtures"] = mixtures
    if data.documents:
        plan |= {
            "max_seq_len": data.packing.max_seq_len,
            "train_batch_size": data.packing.train_batch_size,
            "loss_on": data.packing.loss_on,
            "num_truncated_documents": data.num_truncated,
        }
    if "train" in data.prompt_ids or "train" in data.rows:
        plan["num_iterations"] = len(data.train_dataloader())
    return plan
