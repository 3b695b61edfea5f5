"""Define what all sections of a system file, a study or a snapshot's record share: fields that pydantic checks."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from bertbench.common.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]


class UnsettledError(ConfigError):
    """A setting was read that a system file for fine-tuning leaves out."""

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
            """Raise UnsettledError for a field without a value; only systems for fine-tuning have such fields."""
            if name in type(self).model_fields:
                raise UnsettledError(name)
            return super().__getattr__(name)


def section_of(field: FieldInfo) -> type[Section] | None:
    """Return the section that a field holds; None if it holds a plain value."""
    candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, Section)), None)
