"""Fine-tuning on SQuAD: squad -> features -> batches -> step -> answers -> score, told by run (docs/finetuning.md)."""
