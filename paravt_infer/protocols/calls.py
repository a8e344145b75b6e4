"""Parses tool calls: `<tool_call>` blocks with JSON, and the `<tool_code>` form to which models revert.

Each block is parsed separately, so that a broken one does not lose the others. Text inside a closed `<think>` block,
or inside a tool response that the model wrote itself, is not a call.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from paravt_infer.tools import ParsedCall, ToolCallFault

_OPENING = re.compile(r"<(think|tool_response|tool_call|tool_code)>")
_OBJECT = re.compile(r"\s*(?=\{)")


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A tagged block outside closed `<think>` blocks."""

    kind: str
    """The tag: tool_call, tool_code or tool_response."""
    body: str
    raw: str
    """The block with its tags."""
    closed: bool


def _blocks(text: str) -> Iterator[_Block]:
    """The blocks of a response, in order. A block ends at its closing tag, the next opening tag, or the text's end.

    Tags inside the JSON of a call do not count.
    """
    position = 0
    while opening := _OPENING.search(text, position):
        kind, begin = opening.group(1), opening.end()
        closing = f"</{kind}>"
        if kind == "think":
            end = text.find(closing, begin)
            position = begin if end < 0 else end + len(closing)
            continue
        if kind == "tool_response":
            end = text.find(closing, begin)
            end = len(text) if end < 0 else end
        else:
            next_tag = re.compile(rf"{closing}|{_OPENING.pattern}")
            found = next_tag.search(text, _json_end(text, begin) if kind == "tool_call" else begin)
            end = found.start() if found else len(text)
        closed = text.startswith(closing, end)
        position = end + len(closing) * closed
        yield _Block(kind=kind, body=text[begin:end], raw=text[opening.start() : position], closed=closed)


def _json_end(text: str, begin: int) -> int:
    """Where the JSON object that starts at `begin` ends; `begin` if there is none."""
    start = _OBJECT.match(text, begin)
    if start is None:
        return begin
    try:
        return json.JSONDecoder().raw_decode(text, start.end())[1]
    except (ValueError, RecursionError):
        return begin


def has_forged_response(text: str) -> bool:
    """Whether the model wrote a tool response itself."""
    return any(block.kind == "tool_response" for block in _blocks(text))


def parse_calls(text: str) -> list[ParsedCall]:
    """The calls of a turn, in order. A malformed call carries a fault, or the repairs that made it readable.

    >>> [call.name for call in parse_calls('<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>')]
    ['crop_video']
    """
    calls: list[ParsedCall] = []
    for block in _blocks(text):
        if block.kind == "tool_response":
            continue
        parse = _parse_json if block.kind == "tool_call" else _parse_python
        parsed = parse(block.body, block.raw)
        calls += parsed if block.closed else [_unclosed(call) for call in parsed]
    return calls


def _unclosed(call: ParsedCall) -> ParsedCall:
    """The call of a block without its closing tag: a repair if the call could be parsed, else its fault."""
    unclosed = ToolCallFault.UNCLOSED_BLOCK
    if call.fault in (ToolCallFault.BAD_JSON, ToolCallFault.BAD_PYTHON):
        message = f"the block has no </{call.syntax}> and is cut; {_FORM}"
        return ParsedCall(raw=call.raw, syntax=call.syntax, fault=unclosed, message=message)
    return replace(call, repairs=(unclosed, *call.repairs))


_FORM = (
    'write one object {"name": "crop_video", "arguments": {"video_path": "...", "start_time": 1.0, "end_time": 2.0}}'
)


def _parse_json(body: str, raw: str) -> list[ParsedCall]:
    """The single call of a `<tool_call>` block."""

    def broken(fault: ToolCallFault, message: str) -> list[ParsedCall]:
        return [ParsedCall(raw=raw, fault=fault, message=f"{message}; {_FORM}")]

    repairs: tuple[ToolCallFault, ...] = ()
    try:
        value = _load(body)
    except ValueError:
        found = _embedded_objects(body)
        if len(found) != 1:
            what = "no JSON object" if not found else f"{len(found)} JSON objects"
            return broken(ToolCallFault.BAD_JSON, f"the block holds {what} that can be read")
        value, repairs = found[0], (ToolCallFault.PROSE_AROUND_JSON,)
    if not isinstance(value, dict):
        return broken(ToolCallFault.NOT_A_CALL, f"the block holds a JSON {_kind(value)}, not an object")
    name, arguments = value.get("name"), value.get("arguments", {})
    if isinstance(arguments, str):  # some models write the arguments as JSON in a string
        try:
            arguments = _load(arguments)
        except ValueError:
            return broken(ToolCallFault.BAD_JSON, "the arguments are a string that is not JSON")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        message = 'the object needs a "name" that is a string and "arguments" that are an object'
        return broken(ToolCallFault.NOT_A_CALL, message)
    return [ParsedCall(raw=raw, name=name, arguments=arguments, repairs=repairs)]


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _embedded_objects(text: str) -> list[Any]:
    """The outermost JSON objects with a name in a text, whatever surrounds them."""
    decoder, found, position = json.JSONDecoder(), [], text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
            found.append(value)
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)
    # An object inside a broken one, such as its arguments, is not a call.
    return [value for value in found if isinstance(value, dict) and "name" in value]


def _kind(value: Any) -> str:
    """The JSON type of a value, for messages."""
    kinds = {list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return kinds.get(type(value), "value")


def _parse_python(body: str, raw: str) -> list[ParsedCall]:
    """The calls of a `<tool_code>` block: one or more `crop_video(...)`, perhaps inside `print(...)`."""
    sources = [body] if _parse_source(body) is not None else [line for line in body.splitlines() if line.strip()]
    calls: list[ParsedCall] = []
    for source in sources:
        tree = _parse_source(source)
        found = [] if tree is None else [call for call in map(_inner_call, _expressions(tree)) if call is not None]
        if not found:
            calls.append(_bad_python(raw, "the block is not a readable function call"))
        calls += [_python_call(call, raw) for call in found]
    return calls or [_bad_python(raw, "empty block")]


def _bad_python(raw: str, message: str) -> ParsedCall:
    message = f"{message}; {_FORM}"
    return ParsedCall(raw=raw, syntax="tool_code", fault=ToolCallFault.BAD_PYTHON, message=message)


def _parse_source(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _expressions(tree: ast.Module) -> list[ast.expr]:
    return [s.value for s in tree.body if isinstance(s, (ast.Expr, ast.Assign)) and s.value is not None]


def _inner_call(value: ast.expr) -> ast.Call | None:
    """The call, without a `print(...)` around it; None if the expression is not a call."""
    while isinstance(value, ast.Call) and _name(value) == "print" and value.args:
        value = value.args[0]
    return value if isinstance(value, ast.Call) else None


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _python_call(call: ast.Call, raw: str) -> ParsedCall:
    try:
        positional = tuple(_literal(argument) for argument in call.args)
        arguments = {keyword.arg: _literal(keyword.value) for keyword in call.keywords if keyword.arg is not None}
    except (ValueError, TypeError, RecursionError):
        return _bad_python(raw, "an argument is not a plain value")
    return ParsedCall(raw=raw, name=_name(call), arguments=arguments, positional=positional, syntax="tool_code")


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id.lower() in ("nan", "inf"):
        return float(node.id)
    if isinstance(node, ast.Name) and node.id == "video_path":
        return node.id  # the tool ignores it
    return ast.literal_eval(node)
