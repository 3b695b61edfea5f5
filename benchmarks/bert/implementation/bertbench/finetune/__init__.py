"""Fine-tune on SQuAD: squad -> features -> batches -> span_task -> answers -> score, in run (docs/finetuning.md)."""
