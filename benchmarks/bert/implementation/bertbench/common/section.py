"""Define what all sections of a system file, a study or a snapshot's record share: fields that pydantic checks."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from bertbench.common.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class UnsettledError(ConfigError):
    """A setting was read that has no valid value, or that a system file for fine-tuning leaves out."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the system file has no {name}, which this command needs; add it, or name another system")


class Section(BaseModel):
    """Base of every section: it is frozen, strictly typed, and refuses unknown keys.

    The docstring under a field is its documentation, in the code and in schema.json.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    if not TYPE_CHECKING:  # a type checker would then let every misspelt name pass

        def __getattr__(self, name: str) -> Any:
            """Raise UnsettledError for a field without a value; only `config/partial.py` makes such sections."""
            if name in type(self).model_fields:
                raise UnsettledError(name)
            return super().__getattr__(name)
