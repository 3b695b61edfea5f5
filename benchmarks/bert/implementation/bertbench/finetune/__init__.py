"""Fine-tune on SQuAD: squad -> features -> batches -> span_trainer -> answers -> score, in run (docs/finetuning.md)."""
