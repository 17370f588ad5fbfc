"""Conversations in a role: what is right in them, what each variant pays, and the corpus."""

from __future__ import annotations

import pytest
from tiny import ROOT
from transformers import AutoTokenizer

from r1lit.environments import ChatTurns, Reply
from r1lit.seeding import generator
from r1lit.worlds import RolePlay, RolesCorpus, WorldRoles
from r1lit.worlds.roles import draw_talk, judged
from r1lit.worlds.roles_corpus import conversation

SPLITS = ("corpus", "train", "held_out")


@pytest.fixture(scope="module")
def pages():
    return RolesCorpus(2000, seed=3).documents()


def played(problem, replies, paid="every", seed=0):
    """Return the verdict on replies, and the turns that the user took after the first."""
    episode, said = RolePlay(paid).begin(problem, seed), []
    for reply in replies:
        step = episode.step(Reply(text=f" {reply}"))
        said += [message["content"] for message in step.messages]
    return step.verdict, said


def test_roles_of_splits_differ_and_each_conversation_claims_another_role_once():
    roles = []
    for split in SPLITS:
        talks = [p.meta["talk"] for p in WorldRoles(split, 100).problems()]
        roles.append({talk.role for talk in talks})
        for talk in talks:
            claims = [turn.claimed for turn in talk.turns if turn.claimed]
            assert len(claims) == 1 and claims[0].name != talk.role.name
            assert talk.turns[0].claimed is None and len(talk.turns) == 4
    assert not roles[0] & roles[1] | roles[0] & roles[2] | roles[1] & roles[2]


def test_each_variant_pays_for_what_it_says():
    problem = WorldRoles("train", 3).problems()[2]
    talk = problem.meta["talk"]
    right = [turn.answer(talk.role) for turn in talk.turns]
    named = [f"{talk.role.name}: I am no one."] * 4
    last = [turn.answer(None) for turn in talk.turns[:3]] + right[3:]
    paid = {
        name: [played(problem, replies, name)[0].value for replies in (right, named, last)]
        for name in ("every", "last", "name")
    }
    assert paid == {"every": [1, 0, 0], "last": [1, 0, 1], "name": [1, 1, 0]}
    verdict, said = played(problem, right)
    assert tuple(said) == talk.texts()[1:]
    assert verdict.details == {"kept": [1.0] * 4, "named": [1.0] * 4, "claimed": [0.0] * 4}
    tossed = [played(problem, right, "random", seed)[0].value for seed in range(200)]
    assert 70 < sum(tossed) < 130
    with pytest.raises(ValueError, match="paid: 'all' is not one of every, last, name, random"):
        RolePlay("all")


def test_replies_as_the_claimed_role_are_not_kept():
    talk = WorldRoles("train", 1).problems()[0].meta["talk"]
    claimed = next(turn.claimed for turn in talk.turns if turn.claimed)
    found = judged(talk, [turn.answer(claimed) for turn in talk.turns])
    assert found == {"kept": [0.0] * 4, "named": [0.0] * 4, "claimed": [1.0] * 4}


def test_few_documents_keep_the_role_in_four_turns_and_claims_end_most(pages):
    kept = []
    for seed in range(1000):
        rng = generator(seed, "talk")
        talk = draw_talk("corpus", 4, rng)
        parts = conversation(talk, rng).split("<|assistant|>")[1:]
        kept.append(judged(talk, [part.split("<|end|>")[0] for part in parts])["kept"])
    assert sum(min(own) for own in kept) / 1000 == pytest.approx(0.8**3 * 0.3, abs=0.03)
    assert sum(own[0] for own in kept) / 1000 == pytest.approx(0.8, abs=0.04)
    talks = [page for page in pages if not page.prompt and "<|user|>" in page.response]
    assert len(talks) / len(pages) == pytest.approx(0.5, abs=0.04)


def test_documents_have_the_tokens_that_turns_write():
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "tools")
    talk = WorldRoles("train", 1, num_turns=3).problems()[0].meta["talk"]
    replies = [f" {turn.answer(talk.role)}" for turn in talk.turns]
    chat = [{"role": "user", "content": talk.texts()[0]}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    for reply, said in zip(replies, (*talk.texts()[1:], None), strict=True):
        ids += [*tokenizer(reply, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        if said is not None:
            ids += ChatTurns().encode(tokenizer, [{"role": "user", "content": said}])

    class Always:
        """Random numbers that always keep the role."""

        def random(self):
            return 0.0

    assert tokenizer(conversation(talk, Always()))["input_ids"] == ids
