"""Turns in chat templates and within one response: only appended, with the template's own text."""

from __future__ import annotations

import random

import pytest
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.environments import ChatTurns, InlineTurns, ToolCall
from r1lit.text.prompts import Conversation

TOOL = {
    "type": "function",
    "function": {"name": "look_up", "description": "Look up.", "parameters": {"type": "object"}},
}
CHATML = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}{% if m.role == 'tool' %}<|im_start|>user
<tool_response>{{ m.content }}</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>\
{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# SmolLM2's: neither tools nor calls are shown, and a role is whatever it is called
PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# Gemma's: only two roles
STRICT = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}" \
    "{{ raise_exception('Unknown role ' + m.role) }}{% endif %}{% endfor %}" + PLAIN  # fmt: skip
# thinking of earlier turns is taken out once another message follows, as Qwen3 and R1 do
STRIPPING = PLAIN.replace(
    "{{ m.content }}",
    "{{ m.content if loop.last or m.role != 'assistant' else m.content.split('</think>')[-1] }}",
)
REWRITING = PLAIN.replace(
    "{{ m.content }}", "{{ m.content if loop.last or m.role != 'assistant' else '(before)' }}"
)
SILENT = PLAIN.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}")
ENDLESS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def tokenizer(template: str):
    made = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    made.chat_template = template
    return made


@pytest.mark.parametrize("template", [CHATML, PLAIN])
def test_turns_that_are_appended_are_the_templates_own_conversation(template):
    made, turns, rng = tokenizer(template), ChatTurns(), random.Random(0)
    for _ in range(200):
        messages = [{"role": "user", "content": f"{rng.randint(0, 999)}?"}]
        text = made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = made(text, add_special_tokens=False)["input_ids"]
        for _ in range(rng.randint(1, 4)):
            words = f"{rng.choice(['So', 'I look'])} {rng.randint(0, 99)}"
            ids += made(f"{words}<|im_end|>", add_special_tokens=False)["input_ids"]
            role = rng.choice(["tool", "user"])
            answer = {"role": role, "content": f"it is {rng.randint(0, 99)}"}
            messages += [{"role": "assistant", "content": words}, answer]
            ids += turns.encode(made, [answer])
        whole = made.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert made.decode(ids) == whole
        assert ids == made(whole, add_special_tokens=False)["input_ids"]


def test_results_of_one_turn_stand_together():
    made = tokenizer(CHATML)
    results = [{"role": "tool", "content": c} for c in ("one", "two")]
    text = made.decode(ChatTurns().encode(made, results))
    assert text.startswith("\n<|im_start|>user") and text.count("<tool_response>") == 2
    assert text.endswith("<|im_start|>assistant\n")


def test_a_template_that_leaves_earlier_thinking_out_changes_nothing_that_was_sampled():
    made = tokenizer(STRIPPING)
    ChatTurns(tools_in="system").check(made, "chat", [TOOL])
    assert made.decode(ChatTurns().encode(made, [{"role": "user", "content": "go"}])) == (
        "\n<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("template", "turns", "message"),
    [
        (PLAIN, ChatTurns(), r"tools_in: the chat template does not show the tool 'look_up'"),
        (STRICT, ChatTurns(tools_in="system"), "refuses a result of a tool: Unknown role tool"),
        (REWRITING, ChatTurns(tools_in="system"), "writes an answer in another way"),
        (SILENT, ChatTurns(tools_in="system"), "leaves a tool's result out"),
        (ENDLESS, ChatTurns(tools_in="system"), "ends an answer with no special token"),
        (None, ChatTurns(), "needs a tokenizer with a chat template"),
        (CHATML, ChatTurns(), None),
        (PLAIN, ChatTurns(tools_in="system"), None),
        (STRICT, ChatTurns(tools_in="system", results_as="user"), None),
        (None, InlineTurns(), None),
    ],
)
def test_templates_are_checked(template, turns, message):
    made = tokenizer(template)
    if message is None:
        turns.check(made, "chat", [TOOL])
        return
    with pytest.raises(ValueError, match=message) as error:
        turns.check(made, "chat", [TOOL])
    assert "\n" not in str(error.value)


def test_a_template_without_turns_is_refused():
    with pytest.raises(ValueError, match=r"data.prompts.template: 'r1_zero' has no turns"):
        ChatTurns().check(tokenizer(CHATML), "r1_zero", [])


def test_tools_in_the_system_turn():
    opening = ChatTurns(tools_in="system").opening("Who?", [TOOL], "Be brief.")
    assert isinstance(opening, Conversation)
    system, user = opening.messages
    assert system["content"].startswith("Be brief.\n\n") and "look_up" in system["content"]
    assert user == {"role": "user", "content": "Who?"} and opening.tools is None
    shown = ChatTurns().opening("Who?", [TOOL], "")
    assert shown.tools == [TOOL] and len(shown.messages) == 1


@pytest.mark.parametrize(
    ("turns", "text", "calls", "error"),
    [
        (
            ChatTurns(),
            'I see. <tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>',
            [("f", {"x": 1})],
            "",
        ),
        (
            ChatTurns(),
            '<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>',
            [("f", {}), ("g", {})],
            "",
        ),
        (ChatTurns(), "no call at all", [], ""),
        (ChatTurns(), "<tool_call>{name: f}</tool_call>", [], "a call that is not JSON"),
        (ChatTurns(), "<tool_call>[1]</tool_call>", [], "a call without a name"),
        (ChatTurns(), '<tool_call>{"name": "f", "arguments": 3}</tool_call>', [], "not an object"),
        (ChatTurns(), '<tool_call>{"name": "f"}', [], "does not end"),
        (InlineTurns(), "so <call> 12 * 7 </call>", [("", {"": "12 * 7"})], ""),
        (InlineTurns(), '<call>{"name": "f"}</call>', [("f", {})], ""),
    ],
)
def test_calls_are_read(turns, text, calls, error):
    reply = turns.read(text)
    assert list(reply.calls) == [
        ToolCall(name=n, arguments=a, id=str(i)) for i, (n, a) in enumerate(calls)
    ]
    assert (error in reply.error) if error else not reply.error
