"""Base classes of everything that is validated when it is read: settings, recipes, records, results."""

import re
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, ValidationError

from paravt_infer.errors import suggestion


class FrozenModel(BaseModel):
    """Immutable; unknown fields are errors; the docstrings under the fields are their descriptions."""

    # The mean of an empty list is NaN, which survives JSON as a string.
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings")


class RecordModel(BaseModel):
    """A mutable record, filled in as things happen; otherwise like `FrozenModel`."""

    # Infinities and NaN survive JSON as strings: a log-probability can be -inf.
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings")


def validation_message(error: ValidationError, what: str, *, known: Iterable[str] = ()) -> str:
    """The first problem of a validation error, as one line.

    Args:
        what: what a field is called in messages: setting, field, question field.
        known: names to suggest from where one is unknown.

    >>> from paravt_infer import Settings
    >>> try:
    ...     Settings(frames=0)
    ... except ValidationError as error:
    ...     print(validation_message(error, "setting"))
    setting frames: must be at least 1, not 0
    """
    first = error.errors()[0]
    name, kind = ".".join(str(part) for part in first["loc"]), first["type"]
    where = f"{what} {name}: " if name else ""
    if kind == "missing":
        return f"{where}is missing"
    if kind == "extra_forbidden":
        return f"unknown {what} {name!r}{suggestion(name, known)}"
    if kind == "value_error":  # raised by a validator of this project: its message is complete
        return f"{where}{first['ctx']['error']}"
    message = re.sub(r"^[A-Z][a-z]+ should ", "must ", first["msg"])
    message = re.sub(r", (?:unable|got) .*", "", message)
    message = message.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    if kind == "json_invalid":  # its input is the whole text
        return f"{where}{message}"
    value = repr(first["input"])
    return f"{where}{message}, not {value if len(value) <= 80 else value[:80] + '...'}"
