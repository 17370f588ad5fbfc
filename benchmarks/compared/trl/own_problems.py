"""GRPO on a table of problems, with rewards for the answer and for the format."""

import re

from datasets import load_dataset
from math_verify import parse, verify
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config

FORM = re.compile(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", re.DOTALL)
TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {} Assistant:"
)


def accuracy(completions, answer, **_):
    answers = [re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    pairs = zip(answers, answer, strict=True)
    return [float(bool(found) and verify(parse(gold), parse(found[-1]))) for found, gold in pairs]


def well_formed(completions, **_):
    return [float(FORM.fullmatch(text) is not None) for text in completions]


def train(*more_rewards, as_prompt=TEMPLATE.format, rewards=(accuracy, well_formed)):
    config, model = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
    problems = load_dataset("json", data_files="sums.jsonl", split="train")
    trainer = GRPOTrainer(
        model=model.model_name_or_path,
        reward_funcs=[*rewards, *more_rewards],
        args=config,
        train_dataset=problems.map(lambda row: {"prompt": as_prompt(row["question"])}),
        peft_config=get_peft_config(model),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    train()
