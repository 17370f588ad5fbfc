"""Documents that were curated, rendered by the chat template, and mixtures in fixed shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, save_policy
from transformers import AutoTokenizer

from r1lit.cli import main
from r1lit.data import CuratedDocuments, Document, DocumentSource, Mixture, Part, TableDocuments
from r1lit.data.packing import encode_documents
from r1lit.text.prompts import encode_prompts, render_prompt

CHAT = (
    "{% for m in messages %}User: {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %} Assistant:{% endif %}"
)


@pytest.fixture
def chat_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    tokenizer.chat_template = CHAT
    return tokenizer


def write(path: Path, num: int = 8) -> Path:
    lines = [
        {
            "uid": f"p{i}",
            "sample": 0,
            "source": "sums",
            "kind": "general" if i % 4 == 3 else "reasoning",
            "language": "zh" if i % 2 else "en",
            "prompt": f"{i} + 1?",
            "response": f"<think> try {i} </think> {i + 1}",
        }
        for i in range(num)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Numbers(DocumentSource):
    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    def documents(self) -> list[Document]:
        return [Document(prompt="", response=f"{self.name} {i}") for i in range(self.count)]


def part(name: str, share: float, count: int) -> Part:
    return Part(name=name, share=share, source=Numbers(name, count))


def test_a_document_in_chat_is_encoded_as_its_prompt_is_in_a_rollout(tmp_path, chat_tokenizer):
    documents = CuratedDocuments(str(write(tmp_path / "sft.jsonl"))).documents()
    assert documents[2] == Document(
        prompt="2 + 1?", response="<think> try 2 </think> 3", chat=True
    )  # fmt: skip
    encoded = encode_documents(chat_tokenizer, documents[2:3])[0]
    text = render_prompt(chat_tokenizer, "chat", "{question}", "2 + 1?")
    assert text == "User: 2 + 1? Assistant:"
    (prompt,) = encode_prompts(chat_tokenizer, [text])
    assert tuple(encoded.tokens[: encoded.num_prompt_tokens]) == prompt
    response = chat_tokenizer(documents[2].response, add_special_tokens=False)["input_ids"]
    assert encoded.tokens[len(prompt) :].tolist() == [*response, chat_tokenizer.eos_token_id]


def test_other_templates_are_filled_by_the_source(tmp_path):
    path = str(write(tmp_path / "sft.jsonl"))
    document = CuratedDocuments(path, template="question_answer").documents()[0]
    assert document.prompt == "Question: 0 + 1?\nAnswer:" and not document.chat
    assert TableDocuments(path, template="chat").documents()[0].chat


def test_a_tokenizer_without_chat_template_is_an_error(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    tokenizer.chat_template = None
    documents = CuratedDocuments(str(write(tmp_path / "sft.jsonl"))).documents()
    with pytest.raises(ValueError, match="'chat' needs a tokenizer with a chat template"):
        encode_documents(tokenizer, documents)


def test_lines_are_chosen_by_kind_language_and_source(tmp_path):
    path = str(write(tmp_path / "sft.jsonl"))

    def prompts(**choice: Any) -> list[str]:
        return [d.prompt[0] for d in CuratedDocuments(path, **choice).documents()]

    assert prompts(kinds=["general"]) == ["3", "7"]
    assert prompts(kinds=["reasoning"], languages=["zh"]) == ["1", "5"]
    assert len(prompts(sources=["sums"])) == 8
    with pytest.raises(ValueError, match="no line of"):
        prompts(sources=["other"])
    with pytest.raises(ValueError, match="kinds: an empty list"):
        prompts(kinds=[])


def test_three_to_one_as_far_as_the_scarcer_part_goes(capsys):
    mixture = Mixture([part("reasoning", 3, 100), part("other", 1, 20)])
    texts = [d.response for d in mixture.documents()]
    assert [t.split()[0] for t in texts] == ["reasoning"] * 60 + ["other"] * 20
    assert len(set(texts)) == 80
    out = capsys.readouterr().out
    assert out == ("mixture: 80 documents: reasoning 60 of 100 (75.0 %), other 20 of 20 (25.0 %)\n")
    assert mixture.describe()["reasoning"] == {"taken": 60, "there": 100}


def test_the_seed_alone_chooses():
    def drawn(seed: int, num: int | None = 8) -> list[str]:
        parts = [part("a", 3, 40), part("b", 1, 40)]
        return [d.response for d in Mixture(parts, num_documents=num, seed=seed).documents()]

    assert drawn(0) == drawn(0) != drawn(1)
    assert len(drawn(0)) == 8
    numbers = [int(text.split()[1]) for text in drawn(0)[:6]]
    assert numbers == sorted(numbers)
    assert len(drawn(0, None)) == 39 + 13  # of 40 / 0.75 = 53 documents, rounded down


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixture([part("a", 0, 4)]), "share of part 'a': 0 is not above 0"),
        (lambda: Mixture([part("a", 1, 4), part("a", 1, 4)]), "a name of its own"),
        (lambda: Mixture([]), "parts: give one or more"),
        (lambda: Mixture([part("a", 1, 4)], num_documents=0), "num_documents: 0"),
        (
            lambda: Mixture([part("a", 1, 4), part("b", 1, 9)], num_documents=10).documents(),
            "num_documents: 10 need 5 of part 'a', which has 4",
        ),
        (
            lambda: Mixture([part("a", 99, 4), part("b", 1, 9)]).documents(),
            "share: 1 of part 'b' comes to no document",
        ),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_wording_stands_around_the_question_and_not_in_the_problem(chat_tokenizer):
    assert (
        render_prompt(chat_tokenizer, "chat", "{question} Think.", "1?")
        == "User: 1? Think. Assistant:"
    )
    assert render_prompt(chat_tokenizer, "plain", "Q {question}", "{question}") == "Q {question}"
    with pytest.raises(ValueError, match="wording: 'Q' does not contain"):
        render_prompt(chat_tokenizer, "plain", "Q", "1?")


@pytest.mark.long
def test_a_mixture_in_yaml_is_trained_on(tmp_path, capsys):
    policy = save_policy(tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(policy)
    path = str(write(tmp_path / "sft.jsonl", 16))

    def curated(name: str, share: int, kind: str) -> dict[str, Any]:
        init_args = {"path": path, "kinds": [kind]}
        source = {"class_path": "r1lit.data.CuratedDocuments", "init_args": init_args}
        return {"name": name, "share": share, "source": source}

    config = {
        "model": {
            "class_path": "r1lit.modules.SFTModule",
            "init_args": {
                "policy": str(policy),
                "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.001}},
            },
        },
        "data": {
            "class_path": "r1lit.data.R1DataModule",
            "init_args": {
                "documents": [
                    {
                        "class_path": "r1lit.data.Mixture",
                        "init_args": {
                            "parts": [
                                curated("reasoning", 3, "reasoning"),
                                curated("other", 1, "general"),
                            ]
                        },
                    }
                ],
                "packing": {"max_seq_len": 64, "train_batch_size": 2},
                "num_iterations": 2,
            },
        },
        "trainer": {
            "accelerator": "cpu",
            "max_epochs": 1,
            "default_root_dir": str(tmp_path),
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
        },
    }
    (tmp_path / "sft.yaml").write_text(yaml.safe_dump(config))
    cli = main(["fit", "-c", str(tmp_path / "sft.yaml")])
    assert int(cli.model.iteration) == 2
    assert "mixture: 16 documents: reasoning 12 of 12 (75.0 %)" in capsys.readouterr().out
    assert cli.datamodule.describe()["mixtures"] == [
        {"reasoning": {"taken": 12, "there": 12}, "other": {"taken": 4, "there": 4}}
    ]
