"""Read the name of a published submission's configuration, and find the system that comes with the project for it.

The name is exported, or is a command's argument.

`DGXA100_8x8x48x1` means 8 nodes of 8 GPUs with 48 samples per GPU and gradient step, and 1 gradient step. Endings say
more: `_pack` counts packed rows of 512 tokens instead of samples, `_clipafter` clips after the all-reduce, and `_open`,
which only bertbench uses, means the open division.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Set
from itertools import takewhile
from typing import NamedTuple, Self

from bertbench.common.errors import ConfigError
from bertbench.config import System, load_system, pre_training_names
from bertbench.config.given import parsed_override
from bertbench.config.load import find_system
from bertbench.launch.variables import (
    BATCH_SETTINGS,
    PACKED_OPTION,
    SAMPLES_OF_A_ROW,
    SHAPE_SETTINGS,
    Exported,
    configuration_name,
)

_NAME = re.compile(
    r"(?P<family>[A-Za-z][A-Za-z0-9-]*)_(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<batch>\d+)x(?P<steps>\d+)(_\w+)*"
)

_ENDINGS = ("pack", "clipafter", "open")


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
    """What the name of a configuration says, which is exported or a command's argument."""

    typed: str
    """The name as a user typed it: NAME, or VARIABLE=NAME."""

    name: str
    variable: str | None
    """What exports the name; None for an argument."""

    endings: Set[str]
    """The words after each `_`; of a name without sizes, only the last ones that we know; of a file's name, none."""

    shape: Shape | None
    """None for a name without sizes, such as that of a system of ours."""

    @classmethod
    def of_variable(cls, exported: Exported) -> Self:
        """Return what an exported name says."""
        return cls._of(str(exported), exported.value, exported.name)

    @classmethod
    def of_argument(cls, argument: str) -> Self:
        """Return what a command's argument says."""
        return cls._of(argument, configuration_name(argument), None)

    @classmethod
    def _of(cls, typed: str, name: str, variable: str | None) -> Self:
        parts = _NAME.fullmatch(name)
        words = [] if name.endswith(".json") else name.split("_")[1:]
        if parts is None:
            endings = set(takewhile(_ENDINGS.__contains__, reversed(words)))
            return cls(typed, name, variable, endings, None)
        nodes, gpus, batch, steps = (int(parts[size]) for size in ("nodes", "gpus", "batch", "steps"))
        return cls(typed, name, variable, set(words), Shape(parts["family"], nodes, gpus, batch, steps))

    def system(self, another: str) -> str:
        """Return the system of the project with these nodes and GPUs, or else the one that the name itself names.

        With sizes, it is closed unless the name ends with `_open`. Raises ConfigError if there is none; `another` says
        how to write one for a name without sizes.
        """
        if self.shape is not None:
            return self._shipped(self.shape)
        try:
            find_system(self.name)
        except ConfigError as error:
            origin = f"{self.typed}: " if self.variable else ""  # the error itself repeats an argument
            raise ConfigError(f"{origin}{error}; {another}") from error
        return self.name

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
            f"{self.typed}: no {kind} of {shape.nodes} nodes with {shape.gpus} {shape.family} GPUs comes with the "
            f"project; `bertbench config list` lists those that do; {another_system(str(shape.nodes), str(shape.gpus))}"
        )

    def contradictions(self, system: System, set_by_arguments: Set[str]) -> Iterator[str]:
        """Yield how the endings contradict the run's system, whatever names that.

        An argument overrides the name, so settings in `set_by_arguments` aren't compared.
        """
        by_its_own_name = f"unset {self.variable} and give SYSTEM" if self.variable else f"give {system.name}"
        if "clipafter" in self.endings and "clip.mode" not in set_by_arguments and system.clip.mode != "after":
            yield (
                f"{self.typed} names clipping after the all-reduce, but {system.name} clips {system.clip.mode} it; "
                f"give --set clip.mode=after, or {by_its_own_name}"
            )
        division = system.hardware.division
        if "open" in self.endings and "hardware.division" not in set_by_arguments and division != "open":
            yield (
                f"{self.typed} names the open division, but {system.name} is for the {division} one; "
                f"{by_its_own_name}, or leave _open out of the name"
            )

    def contradicting_sizes(self, system: System, packed: bool, set_by_arguments: Set[str]) -> Iterator[str]:
        """Yield how the batch in the name contradicts the run's system, which the name has chosen.

        With `packed`, the name counts packed rows. `set_by_arguments` is as in `contradictions`.
        """
        if self.shape is None:
            return
        right_name = name_of(system, packed)
        samples = self.shape.micro_batch * self.shape.steps * (SAMPLES_OF_A_ROW if packed else 1)
        resized = not set_by_arguments.isdisjoint({*BATCH_SETTINGS, *SHAPE_SETTINGS})
        if not resized and samples != system.local_batch:
            remedy = (
                f"export {self.variable}={right_name}, or BATCHSIZE as the name has it"
                if self.variable
                else f"give {right_name}, or set data.local_batch={samples}"
            )
            yield (
                f"{self.typed} names {samples} samples per GPU and step, but the run has {system.local_batch}; {remedy}"
            )
        steps = system.data.gradient_accumulation_steps
        if "data.gradient_accumulation_steps" not in set_by_arguments and self.shape.steps != steps:
            remedy = (
                f"export {self.variable}={right_name}, or GRADIENT_STEPS as the name has it"
                if self.variable
                else f"give {right_name}, or set data.gradient_accumulation_steps={self.shape.steps}"
            )
            yield f"{self.typed} names {self.shape.steps} gradient steps, but the run has {steps}; {remedy}"


def counts_packed_rows(names: Iterable[SubmissionName], extra_params: Exported | None, problems: list[str]) -> bool:
    """Return whether BATCHSIZE, and the batch in a name, count packed rows; report a contradiction."""
    packed_names = [name.name for name in names if "pack" in name.endings]
    if extra_params is None:
        return bool(packed_names)
    packed = PACKED_OPTION in extra_params.text.split()
    if packed_names and not packed:
        problems.append(
            f"the name {packed_names[0]} ends with _pack, but EXTRA_PARAMS lacks {PACKED_OPTION}; export the name "
            "without _pack, or EXTRA_PARAMS with it"
        )
    return packed


def shipped_for(argument: str, overrides: Collection[str]) -> str:
    """Return the system that a command's argument means: for a published configuration's name, the project's.

    Raises ConfigError for an unknown name, or one that contradicts the system with these overrides.
    """
    name = SubmissionName.of_argument(argument)
    shipped = name.system(another_system("N", "N"))
    if name.shape is not None:
        system = load_system(shipped, overrides)
        set_by_arguments = {parsed_override(override)[0] for override in overrides}
        problems = [
            *name.contradictions(system, set_by_arguments),
            *name.contradicting_sizes(system, counts_packed_rows([name], None, []), set_by_arguments),
        ]
        if problems:
            raise ConfigError("\n".join(problems))
    return shipped


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
