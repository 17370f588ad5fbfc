"""Small tokenizers of the kinds that models have, each with a chat template."""

from __future__ import annotations

from collections.abc import Callable

from tiny import ROOT
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerBase
from transformers import PreTrainedTokenizerFast as Fast

CORPUS = [
    "What is 12 + 7? The answer is 19, since 12 + 7 = 19.",
    "It was a tool that ended the turn; the user and the assistant think, call and answer.",
    "<p>A page, with [links] and <b>words</b>.</p>\n\nif x < 3 and y > 4:\n    print('no')",
    "A conversation between User and Assistant. Question: who? 谁？ Ответ: я. ｛x｝",
] * 4

CHATML = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}{% if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>\
{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA3 = """{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>

{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}\
<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
INST = """{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}</s>\
{% else %}[INST] {{ m.content }} [/INST]{% endif %}{% endfor %}"""
SEP = """{% for m in messages %}[{{ m.role }}] {{ m.content }} [SEP] {% endfor %}\
{% if add_generation_prompt %}[assistant] {% endif %}"""
TURNS = """{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}\
{% if add_generation_prompt %}assistant:{% endif %}"""


def _byte_level(specials: list[str], **options: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE(**options))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_special_tokens(specials)
    return backend


def chatml() -> Fast:
    """Qwen's kind: turns in special tokens, markup and runs of spaces in added ones."""
    backend = _byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    markup = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    backend.add_tokens([AddedToken(t, normalized=False) for t in [*markup, "  ", "    "]])
    made = Fast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHATML
    return made


def llama3() -> Fast:
    """Llama 3's: whole words are looked up before merges, and BOS is added."""
    names = ["begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id"]
    backend = _byte_level([f"<|{name}|>" for name in names], ignore_merges=True)
    bos = backend.token_to_id("<|begin_of_text|>")
    backend.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)]
    )
    made = Fast(
        tokenizer_object=backend, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>",
        pad_token="<|end_of_text|>",
    )  # fmt: skip
    made.chat_template = LLAMA3
    return made


def phi3() -> Fast:
    """Phi 3's: special tokens that take the white space after them."""
    backend = _byte_level(["<|endoftext|>"])
    names = ["<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(t, rstrip=True, special=True) for t in names])
    made = Fast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = CHATML
    return made


def llama2() -> Fast:
    """Llama 2's: a space before the text, bytes for what is unknown, specials in the vocabulary."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=specials, show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    plain = Tokenizer.from_str(backend.to_str())  # as published, of which three are special
    vocabulary = plain.get_vocab()
    made = Tokenizer(_model_of(backend, vocabulary))
    made.normalizer = backend.normalizer
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])]
    )
    found = Fast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="<unk>",
    )  # fmt: skip
    found.chat_template = INST
    return found


def _model_of(backend: Tokenizer, vocabulary: dict[str, int]) -> models.BPE:
    import json

    merges = json.loads(backend.to_str())["model"]["merges"]
    return models.BPE(
        vocab=vocabulary, merges=[tuple(pair) for pair in merges], unk_token="<unk>",
        fuse_unk=True, byte_fallback=True,
    )  # fmt: skip


def unigram() -> Fast:
    """XLM-R's and T5's: scores of pieces, of which the special tokens are some; NFKC."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    specials = ["<s>", "</s>", "<unk>"]
    alphabet = [*"<>/[]|#_", *map(chr, range(48, 123))]
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=specials, unk_token="<unk>", show_progress=False,
        initial_alphabet=alphabet,
    )  # fmt: skip
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken(t, normalized=True) for t in ("[INST]", "[/INST]", "<think>")])
    made = Fast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="</s>",
    )  # fmt: skip
    made.chat_template = INST
    return made


def wordpiece() -> Fast:
    """BERT's: lower case, and the pieces of words."""
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    alphabet = list("[]<>|/_:?!.,")
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=specials, show_progress=False, initial_alphabet=alphabet
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken("<think>", normalized=True, single_word=True)])
    made = Fast(
        tokenizer_object=backend, cls_token="[CLS]", eos_token="[SEP]", sep_token="[SEP]",
        unk_token="[UNK]", pad_token="[PAD]",
    )  # fmt: skip
    made.chat_template = SEP
    return made


def in_python() -> PreTrainedTokenizerBase:
    """ByT5's, which has no backend in Rust: bytes."""
    made = ByT5Tokenizer(extra_ids=3)
    made.chat_template = TURNS
    return made


def shipped(name: str) -> Callable[[], PreTrainedTokenizerBase]:
    """Return what loads a tokenizer of ``models``."""
    return lambda: AutoTokenizer.from_pretrained(ROOT / "models" / name)


KINDS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    **{name: shipped(name) for name in ("mini", "search", "tools", "repair")},
    "chatml": chatml,
    "llama3": llama3,
    "phi3": phi3,
    "llama2": llama2,
    "unigram": unigram,
    "wordpiece": wordpiece,
    "in_python": in_python,
}
"""Each kind of tokenizer by its name; a call makes a new one."""
