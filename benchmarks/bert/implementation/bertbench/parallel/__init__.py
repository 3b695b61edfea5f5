"""Split a model over ranks: tensor, pipeline and fully sharded data parallelism."""
