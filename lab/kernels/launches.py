"""Count kernels outside compiled code: those of each torch operation that would launch kernels on a GPU."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

_NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_local_scalar_dense", "detach"}
_READS_NOTHING = {"zero_", "fill_", "new_zeros", "zeros_like", "ones_like"}
_COUNTED = {"aten", "bertbench"}  # torch's operators, and ours
_SEVERAL = {"flash_gradient": 3}  # FlashAttention-2: dO times O, the gradients, and dQ's conversion
# ATen/native/cuda/MultiTensorApply.cuh, built for CUDA 13: the most tensors of each list, and blocks, in one launch
_TENSORS = {1: 770, 2: 448, 3: 336, 4: 252, 5: 210}
_BLOCKS, _CHUNK = 2240, 65_536


class EagerOperations(TorchDispatchMode):
    """Counts launches and bytes of operations on fake tensors."""

    supports_higher_order_operators = True  # operators that change an argument are called by one in a compiled graph

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[str] = Counter()
        """Launches by the operation's name."""
        self.bytes = 0
        """Bytes of the inputs and outputs of operations."""
        self.attention_bytes = 0
        """The part of `bytes` that attention's own kernels move."""
        self._counts = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, which makes torch.compile ignore this mode."""
        return True

    def clear(self) -> None:
        """Count from 0."""
        self.launches.clear()
        self.bytes = 0
        self.attention_bytes = 0

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Count nothing within the context."""
        before, self._counts = self._counts, False
        try:
            yield
        finally:
            self._counts = before

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Sequence[Any] = (), options: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count it."""
        result = function(*arguments, **(options or {}))
        if isinstance(function, HigherOrderOperator):
            return result
        name = function.overloadpacket.__name__
        if self._counts and function.namespace in _COUNTED and name not in _NO_KERNEL and not function.is_view:
            self.launches[name] += _launches(name, arguments)
            read = () if name in _READS_NOTHING else (arguments, options)
            # in-place multi-tensor operations return nothing; they write their first list of tensors
            written = arguments[0] if result is None else result
            moved = _bytes((read, written))
            self.bytes += moved
            if "flash" in name:
                self.attention_bytes += moved
        return result


def _bytes(values: Any) -> int:
    leaves = _pytree.tree_leaves(values)
    return sum(leaf.numel() * leaf.element_size() for leaf in leaves if isinstance(leaf, Tensor))


def _launches(name: str, arguments: Sequence[Any]) -> int:
    if name.startswith(("_foreach_", "_fused_adam")):
        lists = [value for value in arguments if isinstance(value, list) and value and hasattr(value[0], "numel")]
        return multi_tensor_launches([tensor.numel() for tensor in lists[0]], len(lists))
    return _SEVERAL.get(name, 1)


def multi_tensor_launches(sizes: Sequence[int], lists: int) -> int:
    """Return the number of launches of a multi-tensor operation on `lists` lists of tensors with these sizes."""
    most_tensors = _TENSORS[min(lists, 5)]
    launches = 0
    tensors = 0  # in the launch that is being filled, like `blocks`
    blocks = 0
    for place, size in enumerate(sizes):
        tensors += 1
        chunks = -(-size // _CHUNK)
        for chunk in range(chunks):
            blocks += 1
            last = chunk == chunks - 1
            full = blocks == _BLOCKS or (tensors == most_tensors and last)
            if full or (last and place == len(sizes) - 1):
                launches += 1
                blocks = 0
                tensors = 0 if last else 1  # an unfinished tensor continues in the next launch
    return launches
