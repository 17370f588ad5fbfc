"""Whether two tokenizers mean the same by a token id."""

from __future__ import annotations

from transformers import PreTrainedTokenizerBase


def check_same_vocabulary(
    student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase, name: str
) -> None:
    """Check that next-token distributions of student and teacher are over the same tokens.

    Args:
        student: the policy's tokenizer.
        teacher: the teacher's tokenizer.
        name: what errors call the teacher.

    Raises:
        ValueError: naming both sizes, or a token that differs, or the two EOS tokens.
    """
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    remedy = (
        "; take a teacher with the policy's tokenizer, or learn from its responses alone with"
        " logit_weight: 0"
    )
    if len(ours) != len(theirs):
        raise ValueError(
            f"teacher: {name!r} has a vocabulary of {len(theirs):,} tokens and the policy one of"
            f" {len(ours):,}, so their next-token distributions cannot be compared{remedy}"
        )
    if ours != theirs:
        their_token = {token_id: token for token, token_id in theirs.items()}
        differ = sorted(
            (token_id, token)
            for token, token_id in ours.items()
            if their_token.get(token_id) != token
        )
        token_id, token = differ[0]
        raise ValueError(
            f"teacher: {name!r} and the policy have vocabularies of {len(ours):,} tokens each, but"
            f" other ones: {len(differ):,} differ, such as {token_id}, which is"
            f" {their_token.get(token_id)!r} to the teacher and {token!r} to the policy{remedy}"
        )
    if student.eos_token_id != teacher.eos_token_id:
        raise ValueError(
            f"teacher: {name!r} ends its responses with {teacher.eos_token!r} and the policy with"
            f" {student.eos_token!r}, which the teacher would teach it never to say; set the same"
            " eos_token in both tokenizer_config.json"
        )
