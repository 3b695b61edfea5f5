"""A model split over ranks: tensor, pipeline and fully sharded data parallelism, and what each costs and sends."""
