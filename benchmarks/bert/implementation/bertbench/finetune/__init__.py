"""Fine-tune on SQuAD (docs/finetuning.md): run calls squad -> features -> batches -> span_task -> answers -> score."""
