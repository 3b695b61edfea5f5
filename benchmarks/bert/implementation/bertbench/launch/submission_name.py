"""Read the name of a published submission's configuration, and find the system that comes with the project for it.

`DGXA100_8x8x48x1` means 8 nodes of 8 GPUs with 48 samples per GPU and gradient step, and 1 gradient step. Endings say
more: `_pack` counts packed rows of 512 tokens instead of samples, `_clipafter` clips after the all-reduce, and `_open`,
which only bertbench uses, means the open division.
"""

import re
from collections.abc import Iterator, Set
from typing import NamedTuple, Self

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system, pre_training_names
from bertbench.launch.variables import BATCH_SETTINGS, PACKED_OPTION, SAMPLES_OF_A_ROW, SHAPE_SETTINGS, Exported

_NAME = re.compile(
    r"(?P<family>[A-Za-z][A-Za-z0-9-]*)_(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<batch>\d+)x(?P<steps>\d+)(_\w+)*"
)


class Shape(NamedTuple):
    """The sizes in a name."""

    family: str
    nodes: int
    gpus: int
    """GPUs on each node."""

    micro_batch: int
    """Samples, or packed rows, of one gradient step on one GPU."""

    steps: int


class SubmissionName(NamedTuple):
    """What an exported name of a configuration says."""

    exported: Exported
    endings: Set[str]
    """The words after each `_`; a system file's name has none that count."""

    shape: Shape | None
    """None for a name without sizes, such as that of a system of ours."""

    @classmethod
    def of(cls, exported: Exported) -> Self:
        """Return what a name says."""
        name = exported.value
        endings = set() if name.endswith(".json") else set(name.split("_")[1:])
        parts = _NAME.fullmatch(name)
        if parts is None:
            return cls(exported, endings, None)
        nodes, gpus, batch, steps = (int(parts[size]) for size in ("nodes", "gpus", "batch", "steps"))
        return cls(exported, endings, Shape(parts["family"], nodes, gpus, batch, steps))

    def system(self, another: str) -> str:
        """Return the system of the project with these nodes and GPUs, or else the one that the name itself names.

        With sizes, it is closed unless the name ends with `_open`. Raises ConfigError if there is none; `another` says
        how to write one for a name without sizes.
        """
        name = self.exported.value
        try:
            if self.shape is not None:
                return self._shipped(self.shape)
            load_system(name)
        except ConfigError as error:
            is_unknown_name = self.shape is None and not name.endswith(".json")
            remedy = f"; {another}" if is_unknown_name else ""
            raise ConfigError(f"{self.exported}: {error}{remedy}") from error
        return name

    def _shipped(self, shape: Shape) -> str:
        families = {shape.family.lower(), f"dgx{shape.family.lower()}"}
        division = "open" if "open" in self.endings else "closed"
        for name in pre_training_names():
            if _family(name) not in families:
                continue
            system = load_system(name)
            has_shape = system.hardware.number_of_nodes == shape.nodes and system.launch.ranks_per_node == shape.gpus
            if has_shape and system.hardware.division == division:
                return name
        kind = "open system" if division == "open" else "system"
        raise ConfigError(
            f"no {kind} of {shape.nodes} nodes with {shape.gpus} {shape.family} GPUs comes with the project; "
            f"`bertbench config list` lists those that do; {another_system(str(shape.nodes), str(shape.gpus))}"
        )

    def contradictions(self, system: System, set_by_arguments: Set[str]) -> Iterator[str]:
        """Yield how the endings contradict the run's system, whatever names that.

        An argument overrides the name, so settings in `set_by_arguments` aren't compared.
        """
        name = self.exported.name
        if "clipafter" in self.endings and "clip.mode" not in set_by_arguments and system.clip.mode != "after":
            yield (
                f"{self.exported} names clipping after the all-reduce, but {system.name} clips {system.clip.mode} it; "
                f"give --set clip.mode=after, or unset {name} and give SYSTEM"
            )
        division = system.hardware.division
        if "open" in self.endings and "hardware.division" not in set_by_arguments and division != "open":
            yield (
                f"{self.exported} names the open division, but {system.name} is for the {division} one; unset {name} "
                "and give SYSTEM, or export the name without _open"
            )

    def contradicting_sizes(self, system: System, packed: bool, set_by_arguments: Set[str]) -> Iterator[str]:
        """Yield how the batch in the name contradicts the run's system, which the name has chosen.

        With `packed`, the name counts packed rows. `set_by_arguments` is as in `contradictions`.
        """
        if self.shape is None:
            return
        otherwise = f"export {self.exported.name}={name_of(system, packed)}"
        samples = self.shape.micro_batch * self.shape.steps * (SAMPLES_OF_A_ROW if packed else 1)
        resized = not set_by_arguments.isdisjoint({*BATCH_SETTINGS, *SHAPE_SETTINGS})
        if not resized and samples != system.local_batch:
            yield (
                f"{self.exported} names {samples} samples per GPU and step, but the run has {system.local_batch}; "
                f"{otherwise}, or BATCHSIZE as the name has it"
            )
        steps = system.data.gradient_accumulation_steps
        if "data.gradient_accumulation_steps" not in set_by_arguments and self.shape.steps != steps:
            yield (
                f"{self.exported} names {self.shape.steps} gradient steps, but the run has {steps}; {otherwise}, or "
                "GRADIENT_STEPS as the name has it"
            )


def counts_packed_rows(name: SubmissionName | None, extra_params: Exported | None, problems: list[str]) -> bool:
    """Return whether BATCHSIZE, and the batch in a name, count packed rows; report a contradiction."""
    named_packed = name is not None and "pack" in name.endings
    if extra_params is None:
        return named_packed
    packed = PACKED_OPTION in extra_params.text.split()
    if name is not None and named_packed and not packed:
        problems.append(
            f"the name {name.exported.value} ends with _pack, but EXTRA_PARAMS lacks {PACKED_OPTION}; export the name "
            "without _pack, or EXTRA_PARAMS with it"
        )
    return packed


def name_of(system: System, packed: bool) -> str:
    """Return the name by which published submissions would call a system's configuration.

    DGXSYSTEM takes it if the system, or the one that it was changed from, comes with the project. With `packed`, it
    counts packed rows, unless the samples of a gradient step don't fill whole rows.
    """
    family = _family(system.name)
    if family.startswith("dgx"):
        family = family.upper()
    ending = "_open" if system.hardware.division == "open" else ""
    batch = system.samples_per_pass
    if packed and batch % SAMPLES_OF_A_ROW == 0:
        batch //= SAMPLES_OF_A_ROW
        ending = f"_pack{ending}"
    shape = (
        system.hardware.number_of_nodes,
        system.launch.ranks_per_node,
        batch,
        system.data.gradient_accumulation_steps,
    )
    return f"{family}_{'x'.join(map(str, shape))}{ending}"


def _family(system_name: str) -> str:
    """Return a system's name without its nodes and division: `dgxa100` for dgxa100_n8_open."""
    return re.sub(r"_n\d+(_open)?$", "", system_name)


def another_system(nodes: str, gpus: str) -> str:
    """Return how to write a system with these numbers of nodes and of GPUs on each, and how to name it."""
    return (
        f"`bertbench config init --nodes {nodes} --gpus {gpus} --gpu-model MODEL` writes one: give its file as SYSTEM"
    )
