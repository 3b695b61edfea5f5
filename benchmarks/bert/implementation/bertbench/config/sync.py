"""The section `sync` of a system file: when the ranks' copies of the model meet."""

from typing import Annotated

from pydantic import Field

from bertbench.config.sections import Count, Section
from bertbench.optim.options import OuterOptions, SyncMethod

# A sum of metrics waits for all gradients ahead of it on the link: once every 32 steps, that costs 3 % at most.
_REPORT_STEPS = 32


class Sync(Section):
    """When ranks synchronise their models (docs/links.md); the closed division allows only every_step."""

    method: SyncMethod = "every_step"
    """`every_step`: gradients are summed in every step. `delayed`: each step applies the sum of `delay_steps` steps
    ago, whose communication overlaps the steps in between. `local_sgd`: ranks train alone and take the mean of their
    weights every `every_steps`. `diloco`: like local_sgd, but the mean's change is the gradient of an outer SGD with
    Nesterov's momentum."""
    every_steps: Count = 32
    """Steps that a rank takes alone (local_sgd, diloco)."""
    outer_learning_rate: Annotated[float, Field(gt=0)] = 0.7
    """Of diloco's outer SGD."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of diloco's outer SGD."""

    delay_steps: Annotated[int, Field(ge=0)] = 1
    """Age of the gradients that a step applies (delayed); 0 is every_step."""
    correction_steps: Annotated[int, Field(ge=0)] | None = None
    """Steps in which the learning rate, divided by 1 + `delay_steps` at first, returns to the schedule's (delayed);
    `schedule.warmup_steps` where it isn't given."""

    @property
    def delay(self) -> int:
        """Age of the gradients that a step applies."""
        return self.delay_steps if self.method == "delayed" else 0

    @property
    def outer(self) -> OuterOptions | None:
        """The outer step of methods whose ranks train alone; None of the others."""
        if self.method == "local_sgd":
            return OuterOptions(self.every_steps, learning_rate=1.0, momentum=0.0)
        if self.method == "diloco":
            return OuterOptions(self.every_steps, self.outer_learning_rate, self.outer_momentum)
        return None

    @property
    def report_steps(self) -> int:
        """Steps between the small sums of metrics and signals, which would wait for a slow link in every step."""
        if self.delay:
            return _REPORT_STEPS
        return 1 if self.outer is None else self.every_steps
