from __future__ import annotations

import pytest

from r1lit.data import PromptOptions
from r1lit.data.packing import encode_documents, encode_prompts, prompt_text
from r1lit.data.sources import Document
from r1lit.text.prompts import turn_end

PAD, BOS, EOS = 0, 1, 2


def ids(tokenizer, text):
    return tuple(tokenizer.convert_tokens_to_ids(list(text)))


def test_a_prompt_gets_what_the_tokenizer_adds_but_no_eos(make_tokenizer):
    plain, bos = make_tokenizer(), make_tokenizer(bos=True)
    both = make_tokenizer(bos=True, append_eos=True)
    ab = ids(plain, "ab")
    assert both("ab")["input_ids"] == [BOS, *ab, EOS]
    assert encode_prompts(plain, ["ab"])[0] == ab
    assert encode_prompts(bos, ["ab"])[0] == (BOS, *ab)
    assert encode_prompts(both, ["ab"])[0] == (BOS, *ab)
    assert encode_prompts(both, ["a", "", "ab"]) == [(BOS, ab[0]), (BOS,), (BOS, *ab)]
    assert encode_prompts(both, []) == []


def test_a_bos_in_the_text_is_not_doubled(bos_tokenizer):
    assert encode_prompts(bos_tokenizer, ["<bos>ab"])[0] == encode_prompts(bos_tokenizer, ["ab"])[0]


def test_an_eos_in_the_text_stays_where_the_tokenizer_adds_none(tokenizer):
    assert encode_prompts(tokenizer, ["a<eos>"])[0] == (*ids(tokenizer, "a"), EOS)


def test_a_document_is_prompt_response_eos_and_begins_like_a_prompt(bos_tokenizer):
    documents = [
        Document(prompt="ab", response=" c"),
        Document(prompt="", response="cd"),
        Document(prompt="a", response="b<eos>"),
    ]
    one, two, three = encode_documents(bos_tokenizer, documents)
    assert tuple(one.tokens) == (BOS, *ids(bos_tokenizer, "ab c"), EOS)
    assert one.num_prompt_tokens == 3
    assert tuple(two.tokens) == (BOS, *ids(bos_tokenizer, "cd"), EOS)
    assert two.num_prompt_tokens == 1
    assert tuple(three.tokens) == (BOS, *ids(bos_tokenizer, "ab"), EOS)


def test_documents_keep_their_order_across_chunks(tokenizer):
    documents = [Document(prompt="", response=str(i)) for i in range(2500)]
    encoded = encode_documents(tokenizer, documents)
    assert ["".join(tokenizer.convert_ids_to_tokens(d.tokens[:-1])) for d in encoded] == [
        str(i) for i in range(2500)
    ]


@pytest.mark.parametrize(("count", "show", "seen"), [(5000, True, True), (5000, False, False)])
def test_a_progress_bar_from_5000_documents_on(tokenizer, capsys, count, show, seen):
    encode_documents(tokenizer, [Document(prompt="", response="a")] * count, show)
    captured = capsys.readouterr()
    assert ("tokenising" in captured.err) == seen
    assert captured.out == ""


def test_few_documents_show_no_bar(tokenizer, capsys):
    encode_documents(tokenizer, [Document(prompt="", response="a")] * 4999)
    assert capsys.readouterr().err == ""


def test_the_chat_template_is_the_tokenizers(make_tokenizer):
    tokenizer = make_tokenizer(bos=True)
    with pytest.raises(ValueError, match=r"^template: 'chat' needs a tokenizer with a chat"):
        prompt_text(tokenizer, "chat", "hi")
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    text = prompt_text(tokenizer, "chat", "hi")
    assert text == "<bos>[user] hi\n[assistant]"
    assert encode_prompts(tokenizer, [text])[0] == (BOS, *ids(tokenizer, "[user] hi\n[assistant]"))


def test_other_templates_are_rendered(tokenizer):
    assert prompt_text(tokenizer, "question_answer", "hi") == "Question: hi\nAnswer:"
    assert prompt_text(tokenizer, "Q {question}!", "hi") == "Q hi!"


TURNS = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}END{% endfor %}"


@pytest.mark.parametrize(
    ("template", "end"),
    [
        (None, None),
        (TURNS.replace("END", "{{ eos_token }}"), "<eos>"),
        (TURNS.replace("END", "<turn>\n"), "<turn>"),
        (TURNS.replace("END", "\n<turn>"), "<turn>"),
        (TURNS.replace("END", "abc"), None),  # words end no response
        ("{% if messages[1] %}{{ raise_exception('one turn') }}{% endif %}", None),
    ],
)
def test_what_ends_a_turn_is_read_off_the_chat_template(make_tokenizer, template, end):
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>"]})
    tokenizer.chat_template = template
    assert turn_end(tokenizer) == (None if end is None else tokenizer.convert_tokens_to_ids(end))
    options = PromptOptions(template="chat")
    assert options.turn_end(tokenizer) == turn_end(tokenizer)
    assert PromptOptions().turn_end(tokenizer) is None  # in R1-Zero's template nothing ends turns
