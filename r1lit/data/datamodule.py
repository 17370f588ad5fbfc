"""The data module: sources in, batches out.

Problems become ``PromptBatch``, documents ``PackedRows``, by the tokenizer of the module.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningDataModule
from transformers import PreTrainedTokenizerBase

from r1lit.batches import Problem
from r1lit.data.base import DocumentSource, ProblemSource
from r1lit.data.contamination import refuse_contamination, refuse_imitated
from r1lit.data.loaders import FixedSampler, Order, PromptLoader, RowLoader, ShuffledSampler
from r1lit.data.packing import LossOn, TooLong
from r1lit.data.plan import describe
from r1lit.data.prompts import EncodedDocument, refuse_longer
from r1lit.data.supervised import pack_documents
from r1lit.text.prompts import ask, encode_prompts

_POSITIVE = (
    "prompts_per_iteration",
    "group_size",
    "num_iterations",
    "num_samples",
    "validation_prompts_per_batch",
    "max_seq_len",
    "train_batch_size",
    "max_prompt_tokens",
)


class R1DataModule(LightningDataModule):
    """Problems for reinforcement learning, or documents for supervised training.

    Reinforcement learning: iteration i takes the next ``prompts_per_iteration`` (P) problems of a
    shuffled pass, and ``num_reserve_prompts`` more, each for ``group_size`` (G) responses. Batch i
    depends on ``seed`` and i alone. An epoch is ``num_iterations`` batches, or one pass; the next
    continues where it stopped. ``validation``, ``test`` and ``predict`` problems come in their own
    order, ``validation_prompts_per_batch`` at most in a batch; ``predict`` defaults to ``train``,
    for rejection sampling.

    Supervised training: documents are shuffled once, packed whole into rows of ``max_seq_len``
    tokens, and ``train_batch_size`` rows make an update. ``loss_on`` is "response", or "all" for
    pretraining. ``too_long`` says what becomes of a document longer than a row. Validation takes
    ``validation_documents`` for their loss, ``validation`` problems to roll out, or both.

    ``template`` is a name or a text with {question} (see ``r1lit.text.templates``), or "chat" for
    the tokenizer's chat template; ``wording`` is put around the question first and is no part of
    the problem. Prompts may have ``max_prompt_tokens`` at most, and fewer than the model's context.
    A held-out problem that is also trained on is an error unless ``allow_overlap``.
    """

    def __init__(
        self,
        train: list[ProblemSource] | None = None,
        validation: list[ProblemSource] | None = None,
        test: list[ProblemSource] | None = None,
        predict: list[ProblemSource] | None = None,
        documents: list[DocumentSource] | None = None,
        validation_documents: list[DocumentSource] | None = None,
        template: str = "r1_zero",
        wording: str = "{question}",
        prompts_per_iteration: int = 16,
        group_size: int = 16,
        num_reserve_prompts: int = 0,
        num_iterations: int | None = None,
        num_samples: int = 16,
        validation_prompts_per_batch: int = 64,
        max_seq_len: int = 1024,
        train_batch_size: int = 16,
        loss_on: LossOn = "response",
        too_long: TooLong = "error",
        max_prompt_tokens: int | None = None,
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
        self.problem_sources = {
            "train": train,
            "validation": validation,
            "test": test,
            "predict": predict or train,
        }
        self.document_sources = {"train": documents, "validation": validation_documents}
        self.template = template
        self.wording = wording
        self.prompts_per_iteration = prompts_per_iteration
        self.group_size = group_size
        self.num_reserve_prompts = num_reserve_prompts
        self.num_iterations = num_iterations
        self.num_samples = num_samples
        self.validation_prompts_per_batch = validation_prompts_per_batch
        self.max_seq_len = max_seq_len
        self.train_batch_size = train_batch_size
        self.loss_on: LossOn = loss_on
        self.too_long: TooLong = too_long
        self.max_prompt_tokens = max_prompt_tokens
        self.allow_overlap = allow_overlap
        self.seed = seed
        for key in _POSITIVE:
            count = getattr(self, key)
            if count is not None and count < 1:
                raise ValueError(f"data.{key}: {count} is not positive")
        if num_reserve_prompts < 0:
            raise ValueError(f"data.num_reserve_prompts: {num_reserve_prompts} is negative")
        self.problems: dict[str, list[Problem]] = {}
        self.prompts: dict[str, list[tuple[int, ...]]] = {}
        self.documents: dict[str, list[EncodedDocument]] = {}
        self.rows: dict[str, list[list[int]]] = {}
        self._train_loader: PromptLoader | RowLoader | None = None
        self._train_state: dict[str, Any] | None = None
        self.num_truncated = 0

    def setup(self, stage: str) -> None:
        """Read and tokenise what ``stage`` needs, once; a fit also reads the test problems."""
        if stage == "fit" and not (self.problem_sources["train"] or self.document_sources["train"]):
            raise ValueError(
                "data: nothing is given to fit: neither data.train (problems, for reinforcement"
                " learning) nor data.documents (for supervised training)"
            )
        if stage == "fit":
            self._train_loader = self._train_state = None
        splits = {"fit": ["train", "validation"], "validate": ["validation"]}.get(stage, [stage])
        if not any(self.problem_sources[s] or self.document_sources.get(s) for s in splits):
            raise ValueError(f"data: nothing is given to {stage}: data.{splits[0]} is null")
        for split in splits:
            self._read_problems(split)
            self._encode_problems(split)
            self._encode_documents(split)
        if stage == "fit" and not self.allow_overlap:
            self._refuse_leaks()

    def _refuse_leaks(self) -> None:
        if "train" in self.documents and "validation" in self.problems:
            refuse_imitated(
                self.documents["train"], self.problems["validation"], self.prompts["validation"]
            )
        if "train" in self.problems:
            self._read_problems("test")
            for split in ("validation", "test"):
                refuse_contamination(self.problems["train"], self.problems.get(split, []), split)

    def train_dataloader(self) -> PromptLoader | RowLoader:
        """Return the loader of a fit's iterations, always the same one: a reload continues."""
        if self._train_loader is None:
            self._train_loader = self._make_train_loader()
            if self._train_state is not None:
                self._train_loader.load_state_dict(self._train_state)
        return self._train_loader

    def val_dataloader(self) -> list[PromptLoader | RowLoader]:
        """Return the loaders of validation documents and of validation problems, those given."""
        loaders: list[PromptLoader | RowLoader] = []
        if "validation" in self.rows:
            size = len(self.rows["validation"])
            rows = FixedSampler(size, self.train_batch_size, self._process()["world_size"])
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

    def state_dict(self) -> dict[str, Any]:
        """Return the training loader's state.

        Lightning 2.6 saves it with its loops too, but does not load it from a checkpoint that was
        written at the end of an epoch: such a run would begin again at iteration 0.
        """
        return {} if self._train_loader is None else {"train": self._train_loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the training loader's state for the loader, which may yet have to be made."""
        self._train_state = state_dict.get("train")
        if self._train_loader is not None and self._train_state is not None:
            self._train_loader.load_state_dict(self._train_state)

    def _make_train_loader(self) -> PromptLoader | RowLoader:
        if "train" in self.rows:
            rows = ShuffledSampler(len(self.rows["train"]), self.train_batch_size, self.seed)
            return self._row_loader("train", rows, self.num_iterations)
        count = self.prompts_per_iteration + self.num_reserve_prompts
        return PromptLoader(
            self.problems["train"],
            self.prompts["train"],
            ShuffledSampler(len(self.problems["train"]), count, self.seed),
            group_size=self.group_size,
            num_reserve=self.num_reserve_prompts,
            num_batches=self.num_iterations,
            **self._process(),
        )

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        assert self.trainer is not None, "setup runs within a trainer"
        module = self.trainer.lightning_module
        tokenizer = getattr(module, "tokenizer", None)
        if tokenizer is None:
            raise ValueError(
                f"model: {type(module).__name__} has no tokenizer, and the data uses the model's"
            )
        if tokenizer.eos_token_id is None:
            raise ValueError(
                "model: its tokenizer has no eos_token, so no response could ever end; set one"
            )
        return tokenizer

    def _process(self) -> dict[str, int]:
        """Return this process's rank and the number of processes among which data is shared."""
        shared = getattr(self.trainer, "distributed_sampler_kwargs", None) or {}
        return {"rank": shared.get("rank", 0), "world_size": shared.get("num_replicas", 1)}

    def _context(self) -> int | None:
        """Return the longest sequence the model takes, if it says."""
        assert self.trainer is not None
        return getattr(self.trainer.lightning_module, "context_length", None)

    def _read_problems(self, split: str) -> None:
        sources = self.problem_sources.get(split)
        if sources and split not in self.problems:
            self.problems[split] = [p for source in sources for p in source.problems()]
            if not self.problems[split]:
                raise ValueError(f"data.{split}: its sources yield no problems")

    def _encode_problems(self, split: str) -> None:
        if split not in self.problems or split in self.prompts:
            return
        tokenizer = self._tokenizer()
        how = (tokenizer, self.template, self.wording)
        prompts = encode_prompts(tokenizer, [ask(*how, p.question) for p in self.problems[split]])
        context = self._context()
        if self.max_prompt_tokens is not None:
            refuse_longer(prompts, self.max_prompt_tokens, split, "data.max_prompt_tokens")
        if context is not None:
            refuse_longer(prompts, context - 1, split, "max_position_embeddings less 1")
        self.prompts[split] = prompts

    def _encode_documents(self, split: str) -> None:
        sources = self.document_sources.get(split)
        if not sources or split in self.rows:
            return
        texts = [document for source in sources for document in source.documents()]
        if not texts:
            raise ValueError(f"data: the document sources of {split} yield no documents")
        packed = pack_documents(
            texts,
            self._tokenizer(),
            max_seq_len=self.max_seq_len,
            too_long=self.too_long,
            context=self._context(),
            shuffle_seed=self.seed if split == "train" else None,
            show_progress=self.trainer is not None and self.trainer.is_global_zero,
        )
        self.documents[split], self.rows[split] = packed.documents, packed.rows
        self.num_truncated += packed.num_truncated

    def _held_out_loader(self, split: str) -> PromptLoader:
        size = len(self.problems[split])
        return PromptLoader(
            self.problems[split],
            self.prompts[split],
            FixedSampler(size, self.validation_prompts_per_batch, self._process()["world_size"]),
            group_size=self.num_samples,
            **self._process(),
        )

    def _row_loader(self, split: str, order: Order, num_batches: int | None) -> RowLoader:
        tokenizer = self._tokenizer()
        pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
        return RowLoader(
            self.documents[split],
            self.rows[split],
            order,
            max_seq_len=self.max_seq_len,
            pad_id=eos if pad is None else pad,
            loss_on=self.loss_on,
            num_batches=num_batches,
            **self._process(),
        )

    def describe(self) -> dict[str, Any]:
        """Return the batch plan: what has been read, and how it is laid out in batches."""
        return describe(self)
