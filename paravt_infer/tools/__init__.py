"""What an agent may call. A registry: another tool is another entry."""

from paravt_infer.tools.base import CallFault, Fault, ParsedCall, Tool, Window
from paravt_infer.tools.crop_video import CropVideo

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (CropVideo(),)}

__all__ = ["TOOLS", "CallFault", "Fault", "ParsedCall", "Tool", "Window"]
