"""Chat protocols, one file per family of models, in a registry by name."""

from paravt_infer.errors import SettingsError, suggestion
from paravt_infer.protocols.base import ChatProtocol, ToolResult
from paravt_infer.protocols.direct import DirectProtocol, ReasoningProtocol
from paravt_infer.protocols.native import NativeToolsProtocol
from paravt_infer.protocols.paravt import ParavtProtocol

PROTOCOLS: dict[str, type[ChatProtocol]] = {
    p.name: p for p in (ParavtProtocol, NativeToolsProtocol, ReasoningProtocol, DirectProtocol)
}


def get_protocol(name: str, *, system_prompt: str | None = None) -> ChatProtocol:
    """The protocol called `name`, with `system_prompt` in place of its own if given.

    Raises:
        SettingsError: unknown protocol.
    """
    if name not in PROTOCOLS:
        raise SettingsError(f"unknown protocol {name!r}{suggestion(name, PROTOCOLS)}")
    return PROTOCOLS[name](system_prompt=system_prompt)


__all__ = ["PROTOCOLS", "ChatProtocol", "ToolResult", "get_protocol"]
