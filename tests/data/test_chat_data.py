"""Conversations, and the columns of other tools: what of them becomes prompt, document and pair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny import data, grpo_config, merge

from r1lit.cli import main
from r1lit.data import PromptOptions, TableDocuments, TablePairs, TableProblems
from r1lit.data.packing import encode_documents, encode_questions, pack_rows
from r1lit.text.prompts import Conversation, question_of
from r1lit.text.scored_text import encode_scored

CHATML = (
    "{% if tools %}[tools {{ tools | length }}]{% endif %}"
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.tool_calls %}call {{ m.tool_calls[0].function.name }}{% else %}{{ m.content }}"
    "{% endif %}<eos>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
# as R1's: the thinking of a finished turn is not shown
FORGETS = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "1+1?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 1}}}]}  # fmt: skip
TOOL = {"role": "tool", "content": "2"}
ANSWER = {"role": "assistant", "content": "<think>two</think>2"}
MORE = {"role": "user", "content": "Sure?"}
YES = {"role": "assistant", "content": "Yes"}


@pytest.fixture
def chat(make_tokenizer):
    made = make_tokenizer()
    made.chat_template = CHATML
    return made


def table(folder: Path, *rows: dict) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def shown(tokenizer, ids) -> str:
    return "".join(tokenizer.convert_ids_to_tokens(list(map(int, ids))))


def parts(tokenizer, documents) -> list[tuple[str, str]]:
    """The two parts of each document as text: without loss, and with it."""
    encoded = [(d.tokens, d.num_prompt_tokens) for d in encode_documents(tokenizer, documents)]
    return [(shown(tokenizer, ids[:n]), shown(tokenizer, ids[n:])) for ids, n in encoded]


def test_every_assistant_turn_of_a_conversation_is_trained_on(tmp_path, chat):
    messages = [SYSTEM, ASK, CALL, TOOL, ANSWER, MORE, YES]
    path = table(tmp_path, {"messages": messages, "tools": [{"name": "add"}]})
    got = parts(chat, TableDocuments(path).documents())
    first = "[tools 1]<system>Be brief.<eos>\n<user>1+1?<eos>\n<assistant>"
    second = first + "call add<eos>\n<tool>2<eos>\n<assistant>"
    third = second + "<think>two</think>2<eos>\n<user>Sure?<eos>\n<assistant>"
    assert got == [
        (first, "call add<eos>"),
        (second, "<think>two</think>2<eos>"),
        (third, "Yes<eos>"),
    ]


PLAIN = CHATML.replace("call {{ m.tool_calls[0].function.name }}", "{{ m.content or '' }}").replace(
    "[tools {{ tools | length }}]", ""
)
"""Shows neither tools nor calls, as templates of models that were not made for tools."""


@pytest.mark.parametrize("content", [None, "", "I add."])
def test_a_call_that_the_template_leaves_out_is_refused(tmp_path, chat, content):
    chat.chat_template = PLAIN
    messages = [ASK, {**CALL, "content": content}, TOOL, ANSWER]
    documents = TableDocuments(table(tmp_path, {"messages": messages})).documents()
    with pytest.raises(ValueError, match="leaves out the call of 'add' in an assistant's tool_cal"):
        encode_documents(chat, documents)


@pytest.mark.parametrize(("template", "warns"), [(PLAIN, True), (CHATML, False)])
def test_tools_that_the_template_does_not_show_are_told(tmp_path, chat, template, warns, recwarn):
    chat.chat_template = template
    row = {"messages": [ASK, ANSWER], "tools": [{"name": "add"}]}
    pack_rows(
        TableDocuments(table(tmp_path, row)).documents(), chat, max_seq_len=256, too_long="error",
        context=None, shuffle_seed=None, show_progress=False,
    )  # fmt: skip
    assert any("nothing of the rows' tools" in str(w.message) for w in recwarn) is warns


def test_thinking_that_a_template_leaves_out_later_is_trained_on_all_the_same(tmp_path, chat):
    chat.chat_template = FORGETS
    path = table(tmp_path, {"messages": [ASK, ANSWER, MORE, YES]})
    first, second = parts(chat, TableDocuments(path).documents())
    assert first == ("<user>1+1?<eos>\n<assistant>", "<think>two</think>2<eos>")
    assert second[0] == "<user>1+1?<eos>\n<assistant>2<eos>\n<user>Sure?<eos>\n<assistant>"


@pytest.mark.parametrize(
    ("row", "options", "prompt"),
    [
        ({"prompt": "1+1?", "completion": "2"}, {}, "1+1?"),
        ({"prompt": [ASK], "completion": [{"role": "assistant", "content": "2"}]}, {},
         "<user>1+1?<eos>\n<assistant>"),
        ({"prompt": "1+1?", "completion": "2"}, {"template": "chat", "system_prompt": "Be brief."},
         "<system>Be brief.<eos>\n<user>1+1?<eos>\n<assistant>"),
        ({"messages": [ASK, {"role": "assistant", "content": "2"}]}, {"system_prompt": "Be brief."},
         "<system>Be brief.<eos>\n<user>1+1?<eos>\n<assistant>"),
        ({"conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]}, {},
         "<user>1+1?<eos>\n<assistant>"),
        ({"instruction": "1+1?", "output": "2"}, {}, "1+1?"),
        ({"instruction": "Add", "input": "1+1", "output": "2"}, {}, "Add\n\n1+1"),
        ({"instruction": "Add", "input": "", "output": "2"}, {"template": "chat"},
         "<user>Add<eos>\n<assistant>"),
        ({"instruction": "Add", "input": "x", "response": "2"}, {"prompt": "input"}, "x"),
        ({"instruction": "Add", "input": "x", "output": "2"}, {"prompt": "instruction"}, "Add"),
    ],
)  # fmt: skip
def test_columns_of_other_tools_are_documents(tmp_path, chat, row, options, prompt):
    documents = TableDocuments(table(tmp_path, row), **options).documents()
    assert parts(chat, documents) == [(prompt, "2<eos>")]


@pytest.mark.parametrize(
    ("value", "shown_text"), [(0, "Even?\n\n0"), (None, "Even?"), (" \n", "Even?")]
)
def test_an_input_that_is_a_number_is_kept(tmp_path, value, shown_text):
    row = {"instruction": "Even?", "input": value, "output": "Yes"}
    (document,) = TableDocuments(table(tmp_path, row)).documents()
    assert document.prompt == shown_text


@pytest.mark.parametrize("tools", [[{"name": "add"}], '[{"name": "add"}]', "", None, "[]"])
def test_tools_may_be_the_json_of_a_list(tmp_path, chat, tools):
    path = table(tmp_path, {"messages": [ASK, ANSWER], "tools": tools})
    ((prompt, _),) = parts(chat, TableDocuments(path).documents())
    assert prompt.startswith("[tools 1]<user>" if tools and "add" in str(tools) else "<user>")


@pytest.mark.parametrize("tools", ["add", '{"name": "add"}', {"name": "add"}, 3])
def test_tools_that_are_no_list_are_refused(tmp_path, tools):
    path = table(tmp_path, {"messages": [ASK, ANSWER], "tools": tools})
    with pytest.raises(ValueError, match=r"^response: row 1 of .*: tools: .* is neither a list"):
        TableDocuments(path).documents()


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_turn_is_not_learnt(tmp_path, content):
    rows = [[ASK, ANSWER], [ASK, {"role": "assistant", "content": content}]]
    path = table(tmp_path, *({"messages": row} for row in rows))
    with pytest.raises(ValueError, match=r"^response: row 2 of .* has an assistant.s turn"):
        TableDocuments(path).documents()
    assert TableDocuments(table(tmp_path, {"messages": [ASK, CALL]})).documents()


@pytest.mark.parametrize(
    "row", [{"messages": [ASK, ANSWER]}, {"instruction": "1+1?", "output": "2"}]
)
def test_columns_beside_a_conversation_are_warned_of(tmp_path, row, recwarn):
    TableDocuments(table(tmp_path, row | {"system": "", "history": []})).documents()
    assert not recwarn
    with pytest.warns(UserWarning, match=r"has texts in system and history, which are not read"):
        TableDocuments(
            table(tmp_path, row | {"system": "Be brief.", "history": [["a", "b"]]})
        ).documents()


def test_a_turn_of_somebody_unknown_is_named(tmp_path):
    turns = [{"from": "human", "value": "Hi"}, {"from": "observation", "value": "2"}]
    said = r"^response: row 1 of .*, column 'conversations': from: 'observation' is not one of sys"
    with pytest.raises(ValueError, match=said):
        TableDocuments(table(tmp_path, {"conversations": turns})).documents()


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [SYSTEM, ASK], "chosen": [ANSWER], "rejected": [YES]},
        {"chosen": [SYSTEM, ASK, ANSWER], "rejected": [SYSTEM, ASK, YES]},
    ],
)
def test_pairs_of_conversations(tmp_path, chat, row):
    (example,) = TablePairs(table(tmp_path, row)).examples()
    assert example.responses == ("<think>two</think>2", "Yes")
    rows = encode_scored(chat, [example.question] * 2, example.responses, template="chat")
    texts = [shown(chat, r.tokens) for r in rows]
    before = "<system>Be brief.<eos>\n<user>1+1?<eos>\n<assistant>"
    assert texts == [before + "<think>two</think>2<eos>", before + "Yes<eos>"]


def test_problems_of_other_tools_and_of_several_turns(tmp_path, chat):
    path = table(
        tmp_path,
        {"prompt": [ASK, YES, MORE], "solution": "2"},
        {"prompt": "2+2?", "solution": 4},
    )
    problems = TableProblems(path).problems()
    turns = "user: 1+1?\n\nassistant: Yes\n\nuser: Sure?"
    assert [(p.question, p.answer) for p in problems] == [(turns, "2"), ("2+2?", "4")]
    prompts = encode_questions(
        [question_of(p) for p in problems],
        chat, template="chat", wording="{question} Think.", system_prompt="Be brief.",
    )  # fmt: skip
    system = "<system>Be brief.<eos>\n"
    assert [shown(chat, ids) for ids in prompts] == [
        f"{system}<user>1+1?<eos>\n<assistant>Yes<eos>\n<user>Sure? Think.<eos>\n<assistant>",
        f"{system}<user>2+2? Think.<eos>\n<assistant>",
    ]
    with pytest.raises(ValueError, match=r"a conversation of 3 messages needs .* template: chat"):
        encode_questions([question_of(problems[0])], chat, template="r1_zero", wording="{question}",
                         system_prompt="")  # fmt: skip


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": [ASK]}, "without an assistant's turn"),
        ({"messages": "hi"}, "response: row 1 .* 'hi' is not a list of messages"),
        ({"messages": [{"from": "user", "text": "x"}]}, "row 1 .* needs a role and a text"),
    ],
)
def test_what_is_no_conversation_is_named(tmp_path, row, words):
    with pytest.raises(ValueError, match=words):
        TableDocuments(table(tmp_path, row)).documents()


def test_pairs_that_share_no_beginning_are_named(tmp_path):
    row = {"chosen": [ASK, YES], "rejected": [MORE, YES]}
    with pytest.raises(ValueError, match=r"chosen: the conversations of row 1 .* do not share"):
        TablePairs(table(tmp_path, row)).examples()


def test_a_system_prompt_needs_a_template_that_has_one():
    with pytest.raises(ValueError, match=r"system_prompt: 'Be brief\.', but template: 'r1_zero'"):
        PromptOptions(system_prompt="Be brief.")


def test_equal_conversations_are_one_key():
    assert Conversation.of([ASK]) == Conversation.of([dict(ASK, tool_calls=None)])
    assert len({Conversation.of([ASK]), Conversation.of([ASK]), Conversation.of([MORE])}) == 2


@pytest.mark.long
def test_the_first_prompt_is_shown_and_responses_keep_theirs(tmp_path, policy, capsys):
    rows = [{"prompt": [ASK, YES, MORE], "solution": "2"}, {"prompt": [ASK], "solution": "2"}]
    arguments = {"path": table(tmp_path, *rows)}
    source = {"class_path": "r1lit.data.TableProblems", "init_args": arguments}
    change = data(train=[source], validation=None, num_iterations=1,
                  rollout={"prompts_per_iteration": 2, "group_size": 4})  # fmt: skip
    trainer = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}
    config = yaml.safe_load(
        grpo_config(tmp_path / "run", policy, merge(change, trainer)).read_text()
    )
    config["data"]["init_args"]["prompts"] = {"template": "chat", "system_prompt": "Be brief."}
    path = tmp_path / "chat.yaml"
    path.write_text(yaml.safe_dump(config))
    main(["fit", "-c", str(path)])
    lines = [json.loads(x) for x in (tmp_path / "run/responses.jsonl").read_text().splitlines()]
    sent = {line["prompt"] for line in lines}
    long = "<|user|> Be brief.<|user|> 1+1?<|assistant|>Yes<|end|><|user|> Sure?<|assistant|>"
    assert {text.removeprefix("<|begin|>") for text in sent} == {
        long,
        "<|user|> Be brief.<|user|> 1+1?<|assistant|>",
    }
    out = " ".join(capsys.readouterr().out.split())
    assert "First prompt as sent: '<|begin|>" in out and "Sure?<|assistant|>'" in out
