from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

REAL = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"


def build_tokenizer(bos: bool = False, append_eos: bool = False) -> PreTrainedTokenizerFast:
    """One token a character; the post-processor adds BOS, or EOS too, as a Llama's does."""
    specials = ["<pad>", "<bos>", "<eos>", "<unk>"]
    characters = [chr(c) for c in range(32, 127)] + ["\n"]
    vocabulary = {text: i for i, text in enumerate(specials + characters)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if bos or append_eos:
        single = " ".join(["<bos>"] * bos + ["$A"] + ["<eos>"] * append_eos)
        backend.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("<bos>", 1), ("<eos>", 2)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer()


@pytest.fixture(scope="session")
def bos_tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(bos=True)


@pytest.fixture(scope="session")
def make_tokenizer():
    return build_tokenizer


@pytest.fixture(scope="session")
def real() -> Path:
    if not (REAL / "gsm8k_train.jsonl").is_file():
        pytest.skip("the shared data is not here")
    return REAL
