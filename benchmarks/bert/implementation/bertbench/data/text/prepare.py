"""`bertbench data prepare`: make a dataset folder from text, completely or not at all.

Everything is written to a temporary folder next to the target, which is renamed when it is complete.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np

from bertbench.common.errors import DataError
from bertbench.common.progress import Progress
from bertbench.common.seeding import derive
from bertbench.common.system_faults import exists
from bertbench.data.store.columns import Array, Columns
from bertbench.data.store.manifest import TOKENIZER_VERSION, Guess, Manifest, existing
from bertbench.data.store.parts import InputFile, recorded, sources_of
from bertbench.data.store.shards import check_place, unfinished, write_split
from bertbench.data.text import corpus
from bertbench.data.text.sentence_pairs import Document, SampleOptions, create_samples
from bertbench.data.text.vocabulary import Vocabulary, tokenizer_of

Texts = Mapping[Literal["text", "wiki"], Sequence[Path]]
"""Files by their format; if there are none, the text is the documentation of the installed Python, numpy and torch."""
SHARD_SAMPLES = 65_536
"""Samples in each file of a dataset. Runs read single samples, so it changes no run, and `data shuffle --shards` writes
the same samples into other files."""
_READERS = {"text": corpus.text_articles, "wiki": corpus.wiki_articles}


@dataclass(frozen=True)
class TextRecipe:
    """The options for making samples from text."""

    options: SampleOptions
    vocab_size: int
    held_out_fraction: float
    """Share of the documents that are kept for evaluation only; a document is never divided."""
    held_out_samples: int
    seed: int


def prepare(
    out: Path, texts: Texts, recipe: TextRecipe, vocab: Path | None, progress: Progress
) -> tuple[Manifest, bool]:
    """Make the dataset `out`; return its manifest and whether it was already there.

    Raises DataError if `out` holds another dataset, or the text is too small to hold documents out.
    """
    check_place(out)
    kinds = [kind for kind, paths in texts.items() for _ in paths]
    files = sources_of([path for paths in texts.values() for path in paths], progress)
    request: dict[str, Any] = {
        "recipe": {**asdict(recipe), "shard_samples": SHARD_SAMPLES},
        "source": _source(kinds, files),
    }
    vocabulary = None if vocab is None else Vocabulary.read(vocab)
    if vocabulary is not None:
        request["vocab_sha256"] = vocabulary.sha256
    if exists(out, DataError):
        return existing(out, request), True
    with unfinished(out) as folder:
        if files:
            readings = [_READERS[kind](file.path) for kind, file in zip(kinds, files, strict=True)]
            articles = list(chain.from_iterable(readings))
        else:
            articles = list(corpus.python_documentation())
        progress.message(f"{len(articles):,} documents; making vocabulary and samples")
        if vocabulary is None:
            vocabulary = Vocabulary.train(chain.from_iterable(articles), recipe.vocab_size)
        documents = tokenize(articles, vocabulary)
        held_out, training = _hold_out(documents, recipe)
        warn_of_one_article("the evaluation split", held_out)
        warn_of_one_article("the training split", training)
        progress.message("making samples and writing shards")
        blocks = create_samples(held_out, vocabulary.ids, recipe.options, derive(recipe.seed, "eval"))
        evaluation = Columns.joined(list(blocks))
        if len(evaluation) < recipe.held_out_samples:
            raise DataError(
                f"the held-out documents give {len(evaluation):,} samples, expected {recipe.held_out_samples:,}; "
                "give more text, or lower data.recipe.held_out_samples or raise data.recipe.held_out_fraction"
            )
        evaluation = evaluation.take(np.arange(recipe.held_out_samples))
        train = create_samples(training, vocabulary.ids, recipe.options, derive(recipe.seed, "train"))
        manifest = Manifest(
            request=request,
            tokenizer_version=TOKENIZER_VERSION,
            documents=len(documents),
            tokenizer=tokenizer_of(vocabulary),
            most_frequent_token=best_guess(evaluation.masked_lm_ids, vocabulary),
            train=write_split(folder / "train", train, SHARD_SAMPLES),
            eval=write_split(folder / "eval", [evaluation], SHARD_SAMPLES),
        )
        vocabulary.write(folder)
        manifest.write(folder)
    return manifest, False


def _source(kinds: Sequence[str], files: Sequence[InputFile]) -> dict[str, Any]:
    """Return what the manifest records of the text: its files in order, or the versions of the documentation."""
    if not files:
        return {"python_documentation": corpus.documentation_versions()}
    source: dict[str, Any] = {}
    for kind in dict.fromkeys(kinds):
        source[kind] = recorded(file for file_kind, file in zip(kinds, files, strict=True) if file_kind == kind)
    return source


def warn_of_one_article(where: str, documents: Sequence[Document]) -> None:
    """Print a warning if there is one article, because next-sentence labels then tell nothing of articles."""
    if len(documents) == 1:
        print(
            f"warning: {where}: found one article, so sentences labelled as unrelated come from the same one; separate "
            "articles by blank lines, or give more text",
            file=sys.stderr,
            flush=True,
        )


def tokenize(articles: list[corpus.Article], vocabulary: Vocabulary) -> list[Document]:
    """Return the token ids of every sentence, without empty sentences and documents."""
    encoded = vocabulary.encode(chain.from_iterable(articles))
    documents = []
    for article in articles:
        sentences = list(islice(encoded, len(article)))
        document = [ids for ids in sentences if ids]
        if document:
            documents.append(document)
    return documents


def _hold_out(documents: list[Document], recipe: TextRecipe) -> tuple[list[Document], list[Document]]:
    """Draw whole documents for evaluation; the rest is for training."""
    shuffled = Random(derive(recipe.seed, "hold out")).sample(documents, len(documents))
    count = round(recipe.held_out_fraction * len(shuffled))
    if not 0 < count < len(shuffled):
        raise DataError(
            f"found {len(shuffled):,} documents and would hold out {count}; expected at least 1 to "
            "evaluate on and 1 to train on; give more text or change data.recipe.held_out_fraction"
        )
    return shuffled[:count], shuffled[count:]


def best_guess(labels: Array, vocabulary: Vocabulary | None) -> Guess:
    """Return the most frequent of the masked tokens, and its share: the accuracy of always guessing it."""
    counts = np.bincount(labels)
    token = int(counts.argmax())
    return Guess(vocabulary.tokens[token] if vocabulary else f"id {token}", float(counts.max() / counts.sum()))
