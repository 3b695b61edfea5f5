"""Let ranks train alone, and give the change of their mean weights to an outer SGD with Nesterov's momentum.

DiLoCo, Douillard et al. 2023; local_sgd.py has the formula.
"""

from pydantic import PositiveFloat

from bertbench.common.section import Fraction
from bertbench.gradients.buckets import ModelWeights
from bertbench.gradients.exchange import Exchange
from bertbench.model.logical_tensors import LogicalTensors
from bertbench.optim.average import EvaluationView
from lab.techniques.local_sgd import LocalSgd, OuterStep


class DiLoCo(LocalSgd):
    """Local SGD whose outer step moves the weights by SGD."""

    name = "diloco"

    outer_learning_rate: PositiveFloat = 0.7
    """Learning rate of the outer SGD."""
    outer_momentum: Fraction = 0.9
    """Momentum of the outer SGD."""

    def view(self, weights: ModelWeights, tensors: LogicalTensors, exchange: Exchange) -> EvaluationView:
        """Return the outer step by SGD; see `Technique`."""
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        return OuterStep(weights, tensors, exchange, self.every_steps, rate, momentum)
