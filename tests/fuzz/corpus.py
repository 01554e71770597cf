"""Write the corpus: every bad file that was found, under a name that says what is wrong with it.

`python -m tests.fuzz.corpus` writes the folder again.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).with_name("corpus")
_NOTES = {"format": "headcount-key-query", "version": "1", "aggregation": "softmax"}
_NOTES |= {"threshold": "0.5", "widths": "[1]", "notes": "{}"}
_GRID = "[grid]\nitems = 16\nd_model = 8\nheads = 1\nkey_dim = 1\n"


def write(folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    _tables(folder)
    for name, queries, more in (
        ("integers", torch.tensor([[[2**53 + 1], [0]]]), {}),
        ("complex", torch.ones(1, 2, 1, dtype=torch.complex64), {}),
        ("threshold-rounded", torch.ones(1, 2, 1), {"threshold": str(2**53 + 1)}),
        ("notes-nested", torch.ones(1, 2, 1), {"notes": "[" * 20_000}),
        ("widths-nested", torch.ones(1, 2, 1), {"widths": "[" * 20_000}),
        ("four-bits", torch.ones(1, 2, 1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), {}),
    ):
        path = folder / f"weights-{name}.safetensors"
        save_file({"queries": queries, "keys": queries.clone()}, path, _NOTES | more)
    texts = {
        "graph-long-id.csv": f"source,target\n0,1\n0,{'9' * 5000}\n",
        "graph-wide-row.csv": f"source,target\n{','.join('1' * 5000)}\n",
        "sweep-nul-in-name.toml": f'name = "a\\u0000b"\n{_GRID}',
        "sweep-escapes-in-name.toml": f'name = "a\\u001b[2J"\n{_GRID}',
        "sweep-many-seeds.toml": f"{_GRID}seeds = 1000000000000\n",
        "sweep-more-seeds.toml": f"{_GRID}seeds = {10**30}\n",
        "sweep-nested.toml": f"a = {'[' * 20_000}\n",
        "sweep-digits.toml": f"a = {'9' * 5000}\n",
        "block-many-seeds.toml": 'table = "sample"\n[[grid]]\nheads = 1\nbudgets = 8\n'
        "seeds = 5000000\n",
        "block-many-items.toml": 'table = "gaussian"\nitems = 4611686018427387904\nd_model = 8\n'
        "[[grid]]\nheads = 1\nbudgets = 8\n",
        "manifest-nested.json": "[" * 20_000,
        "manifest-odd-entry.json": json.dumps({"preset": "quick", "made": [3]}),
        "manifest-odd-seconds.json": json.dumps(
            {"made": [{"trained": 1, "seconds": {"runs": "long"}}]}
        ),
        "config-nested.json": "[" * 20_000,
        "config-digits.json": f'{{"hidden_size": {"9" * 5000}}}',
        "table-integers.csv": f"a,b\n{2**53},1\n{2**53 + 1},1\n",
        "table-integers-with-exponents.csv": f"a,b\n.5,1e22\n{2**53 + 1}e0,1\n",
        "table-short-rows.csv": "name,a,b\nhot,1\ncold,2\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


def _tables(folder: Path) -> None:
    rows = np.array([[2**53, 1], [2**53 + 1, 1]])
    complex_rows = torch.tensor([[1, 1], [1 + 5j, 1]], dtype=torch.complex64)
    np.save(folder / "table-integers.npy", rows)
    np.savez(folder / "table-integers.npz", rows)
    save_file({"embeddings": torch.tensor(rows)}, folder / "table-integers.safetensors")
    torch.save(torch.tensor(rows), folder / "table-integers.pt")
    mixed = pd.DataFrame({"a": rows[:, 0], "b": [1.0, 1.0]})
    mixed.to_parquet(folder / "table-integers-beside-floats.parquet")
    save_file({"embeddings": complex_rows}, folder / "table-complex.safetensors")
    torch.save(complex_rows, folder / "table-complex.pt")
    parts = {"embeddings": torch.eye(2), "null": complex_rows[1].contiguous()}
    save_file(parts, folder / "tokens-complex-null.safetensors")
    torch.save(torch.ones(1, 1).expand(10**6, 10**8), folder / "table-one-row-for-many.pt")
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000, 1000)}"
    text = header.ljust(117).encode() + b"\n"
    claims = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (folder / "table-claims-petabytes.npy").write_bytes(claims)
    with zipfile.ZipFile(folder / "table-claims-petabytes.npz", "w") as file:
        file.writestr(zipfile.ZipInfo("embeddings.npy"), claims)


if __name__ == "__main__":
    write()
