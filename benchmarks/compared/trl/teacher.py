"""On-policy distillation; the teacher is in the same process."""

from datasets import load_dataset
from trl import DistillationConfig, DistillationTrainer, ModelConfig, TrlParser

config, model = TrlParser((DistillationConfig, ModelConfig)).parse_args_and_config()
rows = load_dataset("json", data_files="sums.jsonl", split="train")
rows = rows.map(
    lambda row: {"prompt": [{"role": "user", "content": row["question"]}]},
    remove_columns=rows.column_names,
)
trainer = DistillationTrainer(
    model=model.model_name_or_path,
    teacher_model=config.teacher_model_name_or_path,
    args=config,
    train_dataset=rows,
)
trainer.train()
trainer.save_model()
