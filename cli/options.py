"""Options that several commands share."""

from typing import Any

from paravt_infer.errors import SettingsError


def pairs(settings: list[str], option: str = "--set") -> dict[str, Any]:
    """``key=value`` pairs, values read as JSON where they are."""
    import json

    values: dict[str, Any] = {}
    for pair in settings:
        key, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"{option} {pair}: write KEY=VALUE, as in max_calls=3")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value
    return values
