"""Build sections from content that is partly invalid, so that rules can still check what is valid."""

import json
from contextlib import suppress
from typing import TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from bertbench.common.json_object import JsonObject
from bertbench.common.section import Section

SectionT = TypeVar("SectionT", bound=Section)
_VALUE_RULES: ConfigDict = {"strict": True, "allow_inf_nan": False}  # the same as Section's


def partial(kind: type[SectionT], content: JsonObject) -> SectionT:
    """Return a section with those settings of `content` that are valid.

    Reading any other raises UnsettledError. Unknown keys are left out.
    """
    values: JsonObject = {}
    for name, field in kind.model_fields.items():
        key = field.alias or name
        section = section_of(field)
        if key not in content:
            if not field.is_required():
                values[name] = field.get_default()
        elif section is not None and isinstance(content[key], dict):
            values[name] = partial(section, content[key])
        else:
            adapter = TypeAdapter(field.rebuild_annotation(), config=None if section else _VALUE_RULES)
            with suppress(ValidationError):
                values[name] = adapter.validate_json(json.dumps(content[key]))
    constructed = kind.model_construct(**values)
    for name in kind.model_fields.keys() - values.keys():
        constructed.__dict__.pop(name, None)  # model_construct puts defaults there
    return cast(SectionT, constructed)  # model_construct is typed as of the base


def section_of(field: FieldInfo) -> type[Section] | None:
    """Return the section that a field holds; None if it holds a plain value."""
    candidates = [field.annotation, *getattr(field.annotation, "__args__", ())]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, Section)), None)
