"""The reference's algorithm written for reading, with random's own functions: what the fast one must equal."""

from random import Random

from bertbench.data.text.sentence_pairs import Document, Ids, SampleOptions
from tests.tiny import Sample


def plain_samples(documents: list[Document], ids: Ids, options: SampleOptions, seed: int) -> list[Sample]:
    random = Random(seed)
    random.shuffle(documents)
    samples = []
    for _ in range(options.dupe_factor):
        for index, document in enumerate(documents):
            samples += document_samples(documents, index, document, ids, options, random)
    random.shuffle(samples)
    return samples


def document_samples(
    documents: list[Document], index: int, document: Document, ids: Ids, options: SampleOptions, random: Random
) -> list[Sample]:
    longest = options.max_seq_length - 3
    target = random.randint(2, longest) if random.random() < options.short_seq_prob else longest
    samples, chunk, place = [], [], 0
    while place < len(document):
        chunk.append(document[place])
        if place == len(document) - 1 or sum(map(len, chunk)) >= target:
            split = random.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first, second = joined(chunk[:split]), []
            unrelated = len(chunk) == 1 or random.random() < 0.5
            if unrelated:
                for _ in range(10):
                    other = random.randint(0, len(documents) - 1)
                    if other != index:
                        break
                for sentence in documents[other][random.randint(0, len(documents[other]) - 1) :]:
                    second = second + sentence
                    if len(second) >= target - len(first):
                        break
                place -= len(chunk) - split
            else:
                second = joined(chunk[split:])
            while len(first) + len(second) > longest:
                longer = first if len(first) > len(second) else second
                longer.pop(0 if random.random() < 0.5 else -1)
            samples.append(masked(first, second, int(unrelated), ids, options, random))
            chunk = []
        place += 1
    return samples


def joined(sentences: list[list[int]]) -> list[int]:
    return [token for sentence in sentences for token in sentence]


def masked(first: list[int], second: list[int], label: int, ids: Ids, options: SampleOptions, random: Random) -> Sample:
    tokens = [ids["[CLS]"], *first, ids["[SEP]"], *second, ids["[SEP]"]]
    candidates = [place for place, token in enumerate(tokens) if token not in (ids["[CLS]"], ids["[SEP]"])]
    random.shuffle(candidates)
    count = min(options.max_predictions_per_seq, max(1, round(len(tokens) * options.masked_lm_prob)))
    labels = {place: tokens[place] for place in candidates[:count]}
    for place in candidates[:count]:
        if random.random() < 0.8:
            tokens[place] = ids["[MASK]"]
        elif random.random() >= 0.5:
            words = list(ids)
            tokens[place] = ids[words[random.randint(0, len(words) - 1)]]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    return Sample(tokens, segments, sorted(labels), [labels[place] for place in sorted(labels)], label)
