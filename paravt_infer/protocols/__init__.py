"""How one family of models is spoken to. A registry: one file a family."""

from paravt_infer.errors import SettingsError
from paravt_infer.protocols.base import ChatProtocol, ToolResult
from paravt_infer.protocols.direct import DirectProtocol, ReasoningProtocol
from paravt_infer.protocols.native import NativeToolsProtocol
from paravt_infer.protocols.paravt import ParavtProtocol

PROTOCOLS: dict[str, type[ChatProtocol]] = {
    p.name: p for p in (ParavtProtocol, NativeToolsProtocol, ReasoningProtocol, DirectProtocol)
}


def get_protocol(name: str, *, system_prompt: str | None = None) -> ChatProtocol:
    """The protocol called `name`, its system prompt replaced where one is given.

    Raises:
        SettingsError: no such protocol; lists those there are.
    """
    if name not in PROTOCOLS:
        raise SettingsError(f"setting protocol: there is no {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name](system_prompt=system_prompt)


__all__ = ["PROTOCOLS", "ChatProtocol", "ToolResult", "get_protocol"]
