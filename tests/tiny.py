"""What the tiny system of the tests is: sizes small and mostly coprime, so that a swapped dimension shows."""

from random import Random
from typing import Any

from bertbench.config import System
from bertbench.data.prepare import Recipe

TINY_SYSTEM: dict[str, Any] = {
    "hardware": {
        "division": "open",
        "status": "Research, Development, or Internal (RDI)",
        "system_name": "tiny",
        "number_of_nodes": 1,
    },
    "launch": {"ranks_per_node": 2, "device": "cpu", "timeout_s": 20},
    "model": {
        "vocab_size": 97,
        "hidden_size": 14,
        "layers": 2,
        "attention_heads": 2,
        "feed_forward_size": 23,
        "max_positions": 29,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "data": {
        "path": "unset",
        "global_batch_size": 12,
        "recipe": {
            "vocab_size": 89,
            "dupe_factor": 2,
            "held_out_fraction": 0.2,
            "held_out_samples": 13,
            "shard_samples": 31,
        },
    },
    "optimizer": {"name": "adam", "learning_rate": 1e-2},
    "schedule": {"max_steps": 6},
    "evaluation": {"target": 0.9, "interval_samples": 25, "batch_size": 5},
}

_WORDS = [
    "the",
    "a",
    "model",
    "learns",
    "words",
    "from",
    "context",
    "and",
    "every",
    "sentence",
    "follows",
    "another",
    "one",
    "in",
    "plain",
    "text",
]


def tiny_text(random: Random, articles: int) -> str:
    """Articles of a few sentences, one a line, a blank line between articles."""
    return "\n\n".join(
        "\n".join(
            " ".join(random.choice(_WORDS) for _ in range(random.randint(3, 11))).capitalize() + "."
            for _ in range(random.randint(2, 9))
        )
        for _ in range(articles)
    )


def recipe_of(system: System) -> Recipe:
    """The recipe of a system, as `data prepare` builds it."""
    settings = system.data.recipe
    assert settings is not None
    return Recipe(
        options=settings.options(system.model.max_positions),
        vocab_size=settings.vocab_size,
        held_out_fraction=settings.held_out_fraction,
        held_out_samples=settings.held_out_samples,
        shard_samples=settings.shard_samples,
        seed=settings.seed,
    )
