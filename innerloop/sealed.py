"""Tensor files with a checksum: safetensors files that are rejected if they are damaged.

The safetensors format does not detect a flipped bit. The metadata therefore contain a SHA-256 of
the
tensors and the other metadata. No file is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from innerloop.errors import FileError
from innerloop.files import write_atomically
from innerloop.links import open_file


def write(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, format: str, version: int
) -> None:
    """Write tensors and metadata with their checksum atomically."""
    stored = {
        name: tensor.detach().to("cpu").contiguous().clone() for name, tensor in tensors.items()
    }
    signed = {"format": format, "version": str(version), **metadata}
    signed["sha256"] = _compute_digest(signed, stored)
    write_atomically(path, serialise(stored, signed))


def read(path: Path, *, format: str, version: int) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read the metadata and tensors of a file with this format and at most this format version."""
    metadata, tensors = _read_file(path)
    if metadata.get("format") != format:
        stored = metadata.get("format", "")[:40]
        raise FileError(f"expected a file of format {format!r}, but {path} has format {stored!r}")
    stored = metadata.get("version", "")
    if not (stored.isascii() and stored.isdecimal() and len(stored) < 10):
        raise FileError(f"{path} has no readable format version, got {stored[:40]!r}")
    if int(stored) > version:
        raise FileError(
            f"{path} has format version {stored}, but this version of innerloop reads versions up "
            f"to {version}: upgrade innerloop"
        )
    if metadata.get("sha256") != _compute_digest(metadata, tensors):
        raise FileError(f"{path} is damaged: its contents do not match their SHA-256")
    return metadata, tensors


def read_format(path: Path) -> str:
    """Return the format that a file declares, or an empty text."""
    return _read_file(path)[0].get("format", "")


def _read_file(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        what = "it is not a file" if path.exists() else "there is no such file"
        raise FileError(f"cannot read {path}: {what}")
    try:
        with open(path, "rb", opener=open_file) as opened:
            # safetensors opens names, and only those that are UTF-8: this one is of the open file.
            name = f"/dev/fd/{opened.fileno()}"
            with safe_open(name if os.path.exists(name) else path, framework="pt") as file:
                tensors = {name: file.get_tensor(name).clone() for name in sorted(file.keys())}
                return file.metadata() or {}, tensors
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise FileError(
            f"{path} was cut short or changed, or is not a safetensors file ({error})"
        ) from None


def _compute_digest(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """Compute the SHA-256 of the metadata and tensors."""
    digest = hashlib.sha256()
    signed = {key: value for key, value in metadata.items() if key != "sha256"}
    digest.update(json.dumps(signed, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
