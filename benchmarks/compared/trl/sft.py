"""Supervised training on the problems' solutions."""

from datasets import load_dataset
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser

config, model = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
rows = load_dataset("json", data_files="sums.jsonl", split="train")
rows = rows.map(
    lambda row: {"prompt": row["question"], "completion": row["solution"]},
    remove_columns=rows.column_names,
)
trainer = SFTTrainer(model=model.model_name_or_path, args=config, train_dataset=rows)
trainer.train()
trainer.save_model()
