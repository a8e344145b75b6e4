"""The tools that an agent may call, in a registry by name."""

from paravt_infer.tools.base import ParsedCall, Tool, ToolCallError, ToolCallFault, Window
from paravt_infer.tools.crop_video import CropVideo

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (CropVideo(),)}

__all__ = ["TOOLS", "ParsedCall", "Tool", "ToolCallError", "ToolCallFault", "Window"]
