"""GRPO with a tool, in the chat template of a model that TRL knows."""

from chat import of_texts
from datasets import load_dataset
from own_problems import accuracy
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser
from trl.chat_template_utils import qwen3_chat_template


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number.
        b: the second number.

    Returns:
        Their sum.
    """
    return a + b


def train(rewards, **options):
    config, model = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
    tokenizer = AutoTokenizer.from_pretrained(model.model_name_or_path)
    tokenizer.chat_template = qwen3_chat_template  # the base has none with tools
    problems = load_dataset("json", data_files="sums.jsonl", split="train")
    trainer = GRPOTrainer(
        model=model.model_name_or_path,
        reward_funcs=rewards,
        args=config,
        processing_class=tokenizer,
        train_dataset=problems.map(
            lambda row: {"prompt": [{"role": "user", "content": row["question"]}]}
        ),
        **options,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    train([of_texts(accuracy)], tools=[add])
