"""Counts what a training step does on a GPU, by running it on torch's meta device, which takes the GPU's branches."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lmu_scaling.models import resolve
from lmu_scaling.models.network import LanguageModel, build
from lmu_scaling.training.adam import Adam
from lmu_scaling.training.loop import Objective

# Views that torch does not mark as such, and questions about tensors: no launch.
FREE = {"_unsafe_view", "detach", "alias", "lift_fresh", "_reshape_alias", "empty", "empty_like", "new_empty"}
FREE |= {"empty_strided", "new_empty_strided", "expand"}
SYNCHRONISING = {"_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "unique", "masked_select"}


@dataclass
class Count(TorchDispatchMode):
    """Launches, bytes read and written, and host synchronisations of the operations inside."""

    launches: collections.Counter[str] = field(default_factory=collections.Counter)
    bytes: collections.Counter[str] = field(default_factory=collections.Counter)
    synchronisations: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        self.synchronisations += name in SYNCHRONISING
        out = function(*args, **(kwargs or {}))
        made = [part for part in tree_leaves(out) if isinstance(part, Tensor)]
        if not function.is_view and name not in FREE and any(part.numel() for part in made):
            tensors = {id(part): part for part in tree_leaves((args, kwargs, out)) if isinstance(part, Tensor)}
            self.launches[name] += 1
            self.bytes[name] += sum(map(moved, tensors.values()))
        return out


def moved(tensor: Tensor) -> int:
    """Bytes of a tensor, a broadcast axis counted once."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return count * tensor.element_size()


class GPUFunctions(TorchFunctionMode):
    """What a GPU runs under bfloat16 autocast: linear layers in bfloat16, norms in float32, flash attention."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is F.linear:
            args = [part.to(torch.bfloat16) for part in args]
        if function is F.layer_norm:
            args = [args[0].float(), *args[1:]]
        if function is F.scaled_dot_product_attention:
            widths = (0, -args[0].shape[-1] % 8)  # as torch pads them
            padded = [F.pad(part, widths) for part in args]
            return torch.ops.aten._scaled_dot_product_flash_attention(*padded, 0.0, True)[0][..., : args[0].shape[-1]]
        return function(*args, **kwargs)


@contextlib.contextmanager
def bfloat16() -> Iterator[None]:
    """bfloat16 autocast of a GPU, for the meta device, which has none."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    try:
        with GPUFunctions():
            yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def model(variant: str, d: int, vocab: int = 50257, context: int = 1024) -> LanguageModel:
    return build(resolve(variant, d, context, vocab), compile="on").to("meta")


@dataclass
class Step:
    """A micro-batch forwards and backwards: the body and the head apart, and bytes held for the backward pass."""

    body: Count
    head: Count
    held: int


def micro_batch(net: LanguageModel, b: int) -> Step:
    ids = torch.zeros(b, net.spec.context, dtype=torch.long, device="meta")
    held: dict[int, int] = {}
    parameters = {id(p.untyped_storage()) for p in net.parameters()}
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept.append(storage)  # so that no other gets its id
        if id(storage) not in parameters:
            held[storage._cdata] = storage.nbytes()
        return tensor

    body, head = Count(), Count()
    with bfloat16():
        with body, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            h = net.hidden(ids)
        inner = h.detach().requires_grad_()
        objective = Objective(net)
        net.hidden = lambda ids: inner  # type: ignore[method-assign]
        with head:
            objective(ids, ids).backward()
        del net.hidden
    with body:
        h.backward(inner.grad)
    return Step(body, head, sum(held.values()))


def optimiser_step(net: LanguageModel) -> Count:
    count, adam = Count(), Adam(net, (0.9, 0.999), 1e-7, 0.0)
    for p in net.parameters():
        p.grad = torch.empty_like(p)
    with count:
        torch.nn.utils.get_total_norm(adam.gradients())
        adam.step(1e-3)
    return count
