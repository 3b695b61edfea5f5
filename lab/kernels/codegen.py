"""Generate torch.compile's code for an absent GPU: kernel sources, launches and bytes.

Functions are traced with fake CPU tensors, because a build of torch without CUDA can't even differentiate fake CUDA
tensors. Dynamo and AOTAutograd work as in training. Each graph that reaches Inductor is moved to the GPU, and Inductor
writes its code. Then the graph itself runs on the fake tensors instead of that code.
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree

from lab.kernels.absent_gpu import Gpu, seen_by_compiler

_DEVICE = torch.device("cuda", 0)
_DEFINITION = re.compile(r"^(\w+) = async_compile\.triton\('\w+', '''(.*?)''', device_str='cuda'\)", re.DOTALL | re.M)
_LAUNCH = re.compile(r"^\s+(\w+)\.run\(", re.M)
_LIBRARY = re.compile(r"^\s+(?:\w+ = )?(?:extern_kernels|aten|torch\.ops\.\w+)\.\w+(?:\.\w+)?\(", re.M)
_OWN = re.compile(r"torch\.ops\.bertbench\.\w+(?:\.\w+)?\(")
_SIZE_HINTS = re.compile(r"size_hints=(\{[^}]*\})")


class Kernel(NamedTuple):
    """One Triton kernel, as Inductor wrote it."""

    name: str
    source: str

    @property
    def reads_back(self) -> bool:
        """Return whether the kernel reads what it wrote: one loop over a row keeps values in memory for the next."""
        return "tl.load(out_ptr" in self.source

    @property
    def elements_of_one_block(self) -> int:
        """Return how many elements a kernel with a grid of one block reads; 0 if it has more blocks."""
        match = _SIZE_HINTS.search(self.source)
        assert match, f"Inductor's kernel {self.name} doesn't name its sizes"
        sizes: dict[str, int] = ast.literal_eval(match[1])
        blocks = max((size for axis, size in sizes.items() if not axis.startswith("r")), default=1)
        return max(sizes.values()) if blocks == 1 else 0


class Graph(NamedTuple):
    """The code of one compiled graph: a forward pass, a backward pass, or a pass without gradients."""

    kernels: tuple[Kernel, ...]
    triton_launches: int
    launches: int
    """Launches of Triton's and libraries' kernels in one run of the graph."""
    kernel_bytes: float
    """Bytes that Triton's kernels read and write. Each kernel counts a buffer once, as in Inductor.

    The bytes and launches include the kernels of our own operators, which Inductor calls but doesn't write.
    """
    product_bytes: float
    """Bytes of libraries' kernels: matrix products, and drawing seeds."""


@contextmanager
def generated(gpu: Gpu, ran: Callable[[Graph], None], untouched: Callable[[], Any]) -> Iterator[None]:
    """Make torch.compile generate code for `gpu` within the context.

    `ran` is called with the graph of each run, whose bytes are scaled to the memory of the run's arguments. `untouched`
    returns a context in which the graph runs instead of its code.
    """
    from torch._inductor import compile_fx  # noqa: PLC0415 - torch's compiler takes seconds

    original = compile_fx.compile_fx

    def compile_inner(module: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
        graph = _compiled(gpu, module, inputs, options)
        compiled_for = _bytes(inputs)

        def run(arguments: list[Any]) -> Any:
            scale = _bytes(arguments) / compiled_for
            ran(graph._replace(kernel_bytes=graph.kernel_bytes * scale, product_bytes=graph.product_bytes * scale))
            values = list(arguments)
            arguments.clear()  # AOTAutograd's boxed functions do the same
            with untouched():
                return module.forward(*values)

        run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd's marker
        return run

    def compile_here(*arguments: Any, **options: Any) -> Any:
        # if there are options, it calls itself again with this function or its wrapper
        return original(*arguments, **{"inner_compile": compile_inner, **options})

    with mock.patch.object(compile_fx, "compile_fx", compile_here):
        yield


def _compiled(gpu: Gpu, module: torch.fx.GraphModule, inputs: list[Any], options: dict[str, Any]) -> Graph:
    """Generate the code of one graph."""
    from torch._inductor import compile_fx, config, graph, scheduler  # noqa: PLC0415

    graphs: list[Graph] = []

    def keep(lowering: graph.GraphLowering, code: Any) -> SimpleNamespace:
        library = [
            node.get_read_write_buffers_sizes()
            for node in lowering.scheduler.nodes
            if isinstance(node, scheduler.ExternKernelSchedulerNode) and not _is_own(node)
        ]
        graphs.append(graph_of(code.value, lowering.count_bytes()[0], sum(library)))
        return SimpleNamespace(call=lambda values: values, __file__="", __path__="")  # in place of a module

    mode = torch._guards.detect_fake_mode(inputs)
    moved = _on_gpu(mode, module)
    arguments = [_moved(mode, value) for value in inputs]
    with (
        seen_by_compiler(gpu),
        config.patch(force_disable_caches=True, compile_threads=1),
        mock.patch.object(graph.GraphLowering, "_compile_to_module_lines", keep),
    ):
        compile_fx.compile_fx_inner(moved, arguments, **options)
    return graphs[0]


def graph_of(code: str, all_bytes: int, product_bytes: int) -> Graph:
    """Return the kernels that a module written by Inductor defines and launches."""
    kernels = tuple(Kernel(name, source) for name, source in _DEFINITION.findall(code))
    names = {kernel.name for kernel in kernels}
    runs = [name for name in _LAUNCH.findall(code) if name in names]
    assert set(runs) == names, "Inductor launches every kernel that it defines"
    launches = len(runs) + len(_LIBRARY.findall(code))
    return Graph(kernels, len(runs) + len(_OWN.findall(code)), launches, all_bytes - product_bytes, product_bytes)


def _is_own(node: Any) -> bool:
    """Return whether a node in the compiler's schedule is one of our operators, which is one Triton kernel."""
    return str(getattr(node.node, "python_kernel_name", "")).startswith("torch.ops.bertbench.")


def _on_gpu(mode: Any, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    moved = copy.deepcopy(module)
    for node in moved.graph.nodes:
        node.args = torch.fx.node.map_aggregate(node.args, _renamed)
        node.kwargs = torch.fx.node.map_aggregate(node.kwargs, _renamed)
        if "val" in node.meta:
            node.meta["val"] = _pytree.tree_map(lambda value: _moved(mode, value), node.meta["val"])
    moved.recompile()
    return moved


def _bytes(values: list[Any]) -> float:
    tensors = [value for value in values if isinstance(value, Tensor)]
    sizes = [(tensor.numel(), tensor.element_size()) for tensor in tensors]
    return float(sum((count if isinstance(count, int) else count.node.hint) * size for count, size in sizes))


def _renamed(value: Any) -> Any:
    return _DEVICE if isinstance(value, torch.device) else value


def _moved(mode: Any, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    with mode:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_DEVICE)
