"""What all sections of a system file share: frozen, strictly typed, unknown keys refused, fields documented."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Base of every section; the text under a field is its documentation, in code and in schema.json."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )
