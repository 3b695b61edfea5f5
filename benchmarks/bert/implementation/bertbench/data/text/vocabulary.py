"""Train a small WordPiece vocabulary or read a vocab.txt; special ids are looked up, never assumed."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, WhitespaceSplit
from tokenizers.trainers import WordPieceTrainer

from bertbench.common.compressed import unpacking
from bertbench.common.errors import DataError
from bertbench.common.system_faults import unreadable
from bertbench.data.store import manifest
from bertbench.data.text.words import chunks, normalized, words

_BYTE_ORDER_MARK = "\ufeff"
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_RESERVED = re.compile(r"\[[^\]]*\]")  # such as [unused1]
LONGEST_WORD = 200  # characters; the reference doesn't try to split a longer word
_REMEMBERED = 1 << 17  # words whose ids are cached during encoding: 40 MB
# A vocabulary of hundreds can't hold every rare symbol; words with rarer characters become [UNK].
_ALPHABET_SHARE = 1e-5


@dataclass(frozen=True)
class Vocabulary:
    """Entries in the order of their ids."""

    tokens: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> "Vocabulary":
        """Read a vocab.txt: each line is an entry, whose id is the line's number; white space around it is ignored.

        As in google-research/bert's load_vocab, only a newline ends a line, and each blank line takes an id that no
        word has. Raises DataError if the file can't be read, lacks a special token, or makes an id ambiguous because an
        entry is repeated or follows a byte order mark.
        """
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise DataError(unreadable(path, error, "give a vocab.txt with one entry per line")) from error
        except UnicodeDecodeError as error:
            fault = f"cannot be read as a vocabulary ({error}); give a vocab.txt with one entry per line"
            raise DataError(f"{path}: {unpacking(path) or fault}") from error
        lines = text.removeprefix(_BYTE_ORDER_MARK).removesuffix("\n").split("\n")
        tokens = tuple(line.strip() for line in lines)  # str.splitlines would also split at U+2028 and others
        if text.startswith(_BYTE_ORDER_MARK) and tokens[0] not in SPECIAL_TOKENS:
            raise DataError(
                f"{path}: begins with a byte order mark, which google-research's loader takes for a part of the first "
                f"entry {tokens[0]!r}, so that other programs read that word as [UNK]; save the file without the mark"
            )
        line_of: dict[str, int] = {}
        for number, token in enumerate(tokens, start=1):
            if token and line_of.setdefault(token, number) != number:
                raise DataError(
                    f"{path}: found {token!r} in lines {line_of[token]:,} and {number:,}, so its id is ambiguous; "
                    "every entry of a vocabulary must be different, apart from white space around it"
                )
        missing = [token for token in SPECIAL_TOKENS if token not in tokens]
        if missing:
            raise DataError(f"{path}: found no entry {', '.join(missing)}; expected all of {', '.join(SPECIAL_TOKENS)}")
        return cls(tokens)

    @classmethod
    def train(cls, sentences: Iterable[str], size: int) -> "Vocabulary":
        """Train a lower-case WordPiece vocabulary of `size` entries; the same sentences give the same entries.

        Single characters are fixed first: the library numbers them in the order of a hash table, which
        breaks ties between merges differently in every process.
        Raises DataError if the characters alone fill the vocabulary.
        """
        texts = list(sentences)
        counts = Counter(chain.from_iterable(map(normalized, texts)))
        alphabet = sorted(
            character
            for character, count in counts.items()
            if not character.isspace() and count >= _ALPHABET_SHARE * counts.total()
        )
        continuing = [f"##{character}" for character in alphabet if character.isalnum()]
        fixed = [*SPECIAL_TOKENS, *alphabet, *continuing]
        if len(fixed) >= size:
            raise DataError(
                f"found {len(fixed)} special tokens and characters in the text, which fill a vocabulary of {size}; "
                f"raise data.recipe.vocab_size above {len(fixed)}, or give --vocab vocab.txt"
            )
        trainer = WordPieceTrainer(vocab_size=size, special_tokens=fixed, limit_alphabet=0, show_progress=False)
        tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = WhitespaceSplit()
        tokenizer.train_from_iterator((" ".join(words(text)) for text in texts), trainer)
        by_id = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
        return cls(tuple(token for token, _ in by_id))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def ids(self) -> dict[str, int]:
        """Return the id of each entry."""
        return {token: number for number, token in enumerate(self.tokens)}

    def wrong_case(self, path: Path, lower_case: bool) -> str | None:
        """Return a warning if texts would be read in lower case, or not, against what the vocabulary's entries say."""
        words = [token for token in self.tokens if token not in SPECIAL_TOKENS and not _RESERVED.fullmatch(token)]
        with_capitals = sum(word != word.lower() for word in words)
        if lower_case and with_capitals:
            return (
                f"warning: {path}: {with_capitals:,} of {len(words):,} entries have capitals, but text is read "
                "in lower case, so it never has them"
            )
        if not lower_case and not with_capitals and any(word != word.upper() for word in words):
            return (
                f"warning: {path}: no entry has a capital, but text keeps its capitals, so words with capitals are "
                "[UNK]"
            )
        return None

    @property
    def text(self) -> str:
        """Return the content of vocab.txt."""
        return "".join(f"{token}\n" for token in self.tokens)

    def write(self, folder: Path) -> None:
        """Write folder/vocab.txt."""
        (folder / manifest.VOCAB_NAME).write_text(self.text, encoding="utf-8")

    @property
    def sha256(self) -> str:
        """Return the checksum of vocab.txt, which identifies a dataset's tokenizer."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def tokenizer(self, lower_case: bool = True) -> Tokenizer:
        """Return the library's tokenizer, without special tokens, which also gives each token's characters.

        It treats rare characters differently from the reference; `encode` does not.
        """
        tokenizer = Tokenizer(WordPiece(self.ids, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD))
        tokenizer.normalizer = BertNormalizer(lowercase=lower_case)
        tokenizer.pre_tokenizer = BertPreTokenizer()
        return tokenizer

    def encode(self, sentences: Iterable[str]) -> Iterator[list[int]]:
        """Yield the token ids of each sentence, in lower case, without special tokens, exactly as the reference does.

        Equal ids are one object, so a token takes 8 bytes.
        """

        @lru_cache(_REMEMBERED)
        def ids(chunk: str) -> tuple[int, ...]:
            return tuple(chain.from_iterable(word_pieces(word, self.ids) for word in words(chunk)))

        for sentence in sentences:
            yield list(chain.from_iterable(map(ids, chunks(sentence))))


def tokenizer_of(vocabulary: Vocabulary) -> manifest.Tokenizer:
    """Return the vocabulary's entry in a dataset's manifest."""
    special_ids = {token: vocabulary.ids[token] for token in SPECIAL_TOKENS}
    return manifest.Tokenizer(len(vocabulary), vocabulary.sha256, special_ids)


def word_pieces(word: str, ids: Mapping[str, int]) -> list[int]:
    """Split a word into the longest vocabulary entries, from left to right; return their ids.

    A word that is too long, or has a part without an entry, becomes [UNK] alone. `ids` has the ids of all entries;
    continuations of a word begin with ##. This is WordPiece's greedy longest match (Wu et al., 2016, arXiv 1609.08144;
    google-research/bert's WordpieceTokenizer).
    """
    split: list[int] = []
    start = 0
    while start < len(word) <= LONGEST_WORD:
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            number = ids.get(prefix + word[start:end])
            if number is not None:
                break
        else:
            break
        split.append(number)
        start = end
    return split if start == len(word) else [ids["[UNK]"]]
