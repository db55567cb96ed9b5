"""Train with several processes, as `torchrun` starts them: each computes a share of every batch.

Batch     all processes draw the batch that a single process would draw, and process r of R uses
          instances ⌊rn/R⌋ … ⌊(r+1)n/R⌋ − 1 of its n instances
Gradient  Σ_r w_r g_r, summed over the processes, with w_r such that Σ_r w_r L_r is the loss of the
          whole batch. The optimiser does the same in all processes, so weights stay equal
Files     are read by all processes, and written only by process 0, which also evaluates
End       if a process ends, the others end at their next step with an error message
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from innerloop.devices import CPU
from innerloop.errors import InputError
from innerloop.jsonfiles import parse_json
from innerloop.problems.problem import Problem

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that `torchrun` sets in the environment of each process."""


class LostProcessError(InputError):
    """Another process of this training ended too early."""


@dataclass(frozen=True)
class Group:
    """The processes of a training; `rank` is the number of this process."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def leads(self) -> bool:
        """Whether this is process 0, which writes files and evaluates."""
        return self.rank == 0

    def take_share(self, objective: Any, batch: Any) -> tuple[Any, float]:
        """Return this process's share of a batch, and its weight in the loss of the whole batch."""
        if self.size == 1:
            return batch, 1.0
        take = getattr(objective, "take_share", None)
        return (take or take_instances)(batch, self.rank, self.size)

    def reduce(
        self, model: nn.Module, loss: Tensor, weight: float, stop: bool
    ) -> tuple[float, bool]:
        """Sum loss and gradients over the processes; return the loss, and whether to stop."""
        if self.size == 1:
            return float(loss.detach()), stop
        weights = [w for w in model.parameters() if w.requires_grad]
        present = [float(w.grad is not None) for w in weights]
        about = [weight * float(loss.detach()), float(stop), *present]
        message = torch.tensor(about, dtype=torch.float64, device=self.device)
        self._run(lambda: dist.all_reduce(message))
        total, stopped, *somewhere = message.tolist()
        for dtype in dict.fromkeys(w.dtype for w in weights):
            some = [w for w, k in zip(weights, somewhere, strict=True) if k and w.dtype == dtype]
            grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in some]
            if not grads:
                continue
            flat = torch.cat([grad.reshape(-1) for grad in grads]).mul_(weight)
            self._run(lambda flat=flat: dist.all_reduce(flat))
            for w, part in zip(some, flat.split([g.numel() for g in grads]), strict=True):
                w.grad = part.view_as(w).clone()
        return total, stopped > 0

    def share_result(self, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Compute JSON values in the leading process only, and return them in all processes."""
        if self.size == 1:
            return compute()
        data = json.dumps(compute()).encode() if self.leads else b""
        length = torch.tensor([len(data)], device=self.device)
        self._run(lambda: dist.broadcast(length, 0))
        text = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
        if self.leads:
            text = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        self._run(lambda: dist.broadcast(text, 0))
        return parse_json(bytes(text.tolist()))

    def require_same(self, about: dict[str, Any]) -> None:
        """Raise `InputError` if the processes have different recipes, settings or seeds."""
        if self.size == 1:
            return
        description = parse_json(json.dumps(about))
        differs = float(self.share_result(lambda: description) != description)
        disagreement = torch.tensor([differs], device=self.device)
        self._run(lambda: dist.all_reduce(disagreement))
        if float(disagreement):
            raise InputError(
                f"the {self.size} processes that were started together must train the same recipe "
                "with the same settings and seed: start each alone, without torchrun"
            )

    def wait(self) -> None:
        """Wait until all processes have called this function."""
        if self.size > 1:
            self.share_result(dict)

    def _run(self, communicate: Callable[[], object]) -> None:
        try:
            communicate()
        except RuntimeError:
            raise LostProcessError(
                f"another of the {self.size} processes of this training has ended: process "
                f"{self.rank} stops; start them again with --resume"
            ) from None


def take_instances(batch: Any, rank: int, size: int) -> tuple[Any, float]:
    """Return the share of one process in a batch whose first dimension is the instances."""
    if isinstance(batch, Problem):
        count = len(batch)
        first, last = find_share(count, rank, size)
        return batch[first:last], (last - first) / count
    if isinstance(batch, Tensor):
        first, last = find_share(len(batch), rank, size)
        return batch[first:last], (last - first) / len(batch)
    if isinstance(batch, tuple) and batch:
        parts = [take_instances(part, rank, size) for part in batch]
        shares = [share for share, _ in parts]
        return type(batch)(*shares) if hasattr(batch, "_fields") else tuple(shares), parts[0][1]
    raise InputError(
        f"a batch of type {type(batch).__name__} cannot be shared by {size} processes: train "
        "with one"
    )


def find_share(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first instance of a process's share, and the first one after it."""
    if count < size:
        raise InputError(
            f"{count} instances cannot be shared by {size} processes: start fewer processes"
        )
    return rank * count // size, (rank + 1) * count // size


def count_processes() -> int:
    """Return the number of processes that were started together, including this one."""
    if not all(name in os.environ for name in VARIABLES):
        return 1
    size = os.environ["WORLD_SIZE"]
    return int(size) if size.isdecimal() else 1


def is_leading() -> bool:
    """Return whether this process is the one that prints and writes."""
    return count_processes() == 1 or os.environ["RANK"] == "0"


def join_group(device: torch.device) -> Group:
    """Join the processes that were started together; a single process forms a group of one."""
    if count_processes() == 1:
        return Group(device=device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            dist.init_process_group(backend)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"the processes cannot be joined by {backend}: {reason}") from None
        atexit.register(leave_group)
    return Group(dist.get_rank(), dist.get_world_size(), device)


def leave_group() -> None:
    """Leave the group; other processes may already have ended."""
    with suppress(RuntimeError, ValueError):
        if dist.is_initialized():
            dist.destroy_process_group()
