"""How one family of models is spoken to. A registry: one file a family."""

from paravt_infer.errors import SettingsError
from paravt_infer.protocols.base import Protocol, Told
from paravt_infer.protocols.direct import Direct, Reasoning
from paravt_infer.protocols.native import NativeTools
from paravt_infer.protocols.paravt import Paravt

PROTOCOLS: dict[str, type[Protocol]] = {p.name: p for p in (Paravt, NativeTools, Reasoning, Direct)}


def get_protocol(name: str, *, system_prompt: str | None = None) -> Protocol:
    """The protocol called `name`, its system prompt replaced where one is given.

    Raises:
        SettingsError: no such protocol; lists those there are.
    """
    if name not in PROTOCOLS:
        raise SettingsError(f"setting protocol: there is no {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name](system_prompt=system_prompt)


__all__ = ["PROTOCOLS", "Protocol", "Told", "get_protocol"]
