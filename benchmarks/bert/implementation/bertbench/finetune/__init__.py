"""Fine-tuning on SQuAD: squad -> features -> batches -> step -> answers -> score, in run (docs/finetuning.md)."""
