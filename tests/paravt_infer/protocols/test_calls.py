"""What of a response is a call, what is wrong with one that is none, and that each is read on its own."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.protocols.calls import has_forged_response, parse_calls
from paravt_infer.tools import ParsedCall
from paravt_infer.tools import ToolCallFault as Fault

ONE = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2}}</tool_call>'
TWO = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 3, "end_time": 4}}</tool_call>'


def block(arguments: Any, name: Any = "crop_video") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"


def starts(calls: list[ParsedCall]) -> list[Any]:
    """Each call's start time, or its fault."""
    return [call.fault or call.arguments.get("start_time") for call in calls]


def test_a_call_is_its_name_its_arguments_and_what_was_written() -> None:
    (call,) = parse_calls(f"Let me look.\n{ONE}\nDone.")
    assert call == ParsedCall(raw=ONE, name="crop_video", arguments={"start_time": 1, "end_time": 2})
    assert (call.syntax, call.repairs, call.fault) == ("tool_call", (), None)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("", []),
        ("The answer is B.", []),
        (ONE + TWO, [1, 3]),
        (f"<think>first</think>\n{ONE}\nand\n{TWO}\n", [1, 3]),
        ("<tool_call>\n" + ONE.removeprefix("<tool_call>"), [1]),
        (f"{ONE}<tool_call>{{broken</tool_call>{TWO}", [1, Fault.BAD_JSON, 3]),
        (f'{ONE}<tool_call>{{"name": "crop_video", "arguments": {{"a": "open</tool_call>{TWO}', [1, Fault.BAD_JSON, 3]),
        (f"<tool_call>{{broken{ONE}", [Fault.UNCLOSED_BLOCK, 1]),
        (f"{ONE}<tool_code>crop_video(start_time=5, end_time=6)</tool_code>{TWO}", [1, 5, 3]),
        (f"<tool_code>crop_video(start_time=5,</tool_code>{TWO}", [Fault.BAD_PYTHON, 3]),
        ("</tool_call>" + ONE, [1]),
    ],
    ids=[
        "nothing", "prose", "two blocks", "thought and prose around", "line break", "broken between",
        "string left open", "block left open", "both forms mixed", "broken Python first", "stray closing tag",
    ],
)  # fmt: skip
def test_blocks_are_read_in_order_and_each_on_its_own(response: str, expected: list[Any]) -> None:
    assert starts(parse_calls(response)) == expected


@pytest.mark.parametrize(
    ("body", "fault", "says"),
    [
        ("", Fault.BAD_JSON, "no JSON object"),
        ("   \n", Fault.BAD_JSON, "no JSON object"),
        ("crop the video", Fault.BAD_JSON, "no JSON object"),
        ('{"name": "crop_video", "arguments": {"start_time": 1}', Fault.BAD_JSON, "no JSON object"),
        ('{"name": crop_video, "arguments": {"start_time": 1}}', Fault.BAD_JSON, "no JSON object"),
        ("{'name': 'crop_video'}", Fault.BAD_JSON, "no JSON object"),
        ('{"name": "a", "arguments": {}} {"name": "b", "arguments": {}}', Fault.BAD_JSON, "2 JSON objects"),
        ("[" * 100_000, Fault.BAD_JSON, "no JSON object"),
        ('{"name": "a", "arguments": "start 1"}', Fault.BAD_JSON, "a string that is not JSON"),
        ('[{"name": "a", "arguments": {}}]', Fault.NOT_A_CALL, "a JSON array, not an object"),
        ('"crop_video"', Fault.NOT_A_CALL, "a JSON string, not an object"),
        ("12", Fault.NOT_A_CALL, "a JSON number, not an object"),
        ("true", Fault.NOT_A_CALL, "a JSON boolean, not an object"),
        ("null", Fault.NOT_A_CALL, "a JSON null, not an object"),
        ("{}", Fault.NOT_A_CALL, '"name" that is a string'),
        ('{"arguments": {"start_time": 1}}', Fault.NOT_A_CALL, '"name" that is a string'),
        ('{"name": 3, "arguments": {}}', Fault.NOT_A_CALL, '"name" that is a string'),
        ('{"name": "a", "arguments": [1, 2]}', Fault.NOT_A_CALL, '"arguments" that are an object'),
        ('{"name": "a", "arguments": null}', Fault.NOT_A_CALL, '"arguments" that are an object'),
        ('{"name": "a", "arguments": "[1]"}', Fault.NOT_A_CALL, '"arguments" that are an object'),
    ],
    ids=[
        "empty", "blank", "prose", "cut", "unquoted name", "Python quotes", "two objects", "nested too deep",
        "arguments as prose", "array", "string", "number", "boolean", "null", "empty object", "no name",
        "name a number", "arguments an array", "arguments null", "arguments an array in a string",
    ],
)  # fmt: skip
def test_a_block_that_is_no_call_says_what_is_wrong_and_what_to_write(body: str, fault: Fault, says: str) -> None:
    (call,) = parse_calls(f"<tool_call>{body}</tool_call>")
    assert (call.fault, call.name, call.arguments) == (fault, "", {})
    assert says in call.message
    assert 'write one object {"name": "crop_video"' in call.message
    assert "\n" not in call.message
    assert call.raw == f"<tool_call>{body}</tool_call>"


@pytest.mark.parametrize(
    ("response", "repairs"),
    [
        ("<tool_call>Here: {} as asked</tool_call>", [Fault.PROSE_AROUND_JSON]),
        ("<tool_call>```json\n{}\n```</tool_call>", [Fault.PROSE_AROUND_JSON]),
        ("<tool_call>{} {{}}</tool_call>", [Fault.PROSE_AROUND_JSON]),
        ("<tool_call>{}", [Fault.UNCLOSED_BLOCK]),
        ("<tool_call>{}\n<tool_call>broken</tool_call>", [Fault.UNCLOSED_BLOCK]),
        ("<tool_call>{}<tool_response>made up</tool_response>", [Fault.UNCLOSED_BLOCK]),
        ("<tool_call>{} and now I wait", [Fault.UNCLOSED_BLOCK, Fault.PROSE_AROUND_JSON]),
    ],
    ids=["prose", "fence", "empty object beside", "left open", "open, then a block", "open, then a response", "both"],
)
def test_a_fault_of_form_is_got_over_and_told(response: str, repairs: list[Fault]) -> None:
    call = parse_calls(response.replace("{}", '{"name": "crop_video", "arguments": {"start_time": 1}}', 1))[0]
    assert (call.fault, call.name, call.arguments) == (None, "crop_video", {"start_time": 1})
    assert list(call.repairs) == repairs


@pytest.mark.parametrize(
    "response", ["<tool_call>", "<tool_call>{", '<tool_call>{"name": "crop', "<tool_code>crop_video(1,"]
)
def test_a_block_that_was_cut_off_is_told_so(response: str) -> None:
    (call,) = parse_calls(response)
    assert call.fault is Fault.UNCLOSED_BLOCK
    assert f"has no </{call.syntax}> and is cut" in call.message


@pytest.mark.parametrize(
    "path",
    [
        "a {b} }}{{ c",
        'quotes " and \\ backslashes',
        "</tool_call>",
        "<tool_call>",
        "<tool_call>{}</tool_call>",
        "<think>",
        "<think>a</think>",
        "<tool_response>",
        "<tool_response>x</tool_response>",
        "<tool_code>crop_video(1, 2)</tool_code>",
        "line\nbreak \u2028 and \U0001f3ac",
    ],
)
def test_what_stands_in_a_json_string_is_text(path: str) -> None:
    arguments = {"video_path": path, "inner": {"deep": [{"er": path}]}, "start_time": 1}
    for response in (block(arguments), f"{block(arguments)} then {ONE}", f"{ONE}{block(arguments)}{TWO}"):
        calls = parse_calls(response)
        assert arguments in [call.arguments for call in calls]
        assert starts(calls) == [1, 1, 3][: len(calls)]
        assert len(calls) == response.count('"start_time"')
        assert not has_forged_response(response)


def test_arguments_may_be_json_in_a_string_and_may_be_missing() -> None:
    calls = parse_calls(block('{"start_time": 1}') + '<tool_call>{"name": "crop_video"}</tool_call>')
    assert [call.arguments for call in calls] == [{"start_time": 1}, {}]
    assert [call.fault for call in calls] == [None, None]


@pytest.mark.parametrize(
    ("response", "expected", "forged"),
    [
        (f"<think>I could {ONE}</think>", [], False),
        (f"<think>I could {ONE}</think>{TWO}", [3], False),
        (f"<think>a</think>{ONE}<think>{TWO}</think>", [1], False),
        (f"<think>never closed {ONE}", [1], False),
        (f"<tool_response>{ONE}</tool_response>{TWO}", [3], True),
        (f"{TWO}<tool_response>never closed {ONE}", [3], True),
        (f"<think><tool_response>{ONE}</think>{TWO}", [3], False),
        (f"<tool_response><think></tool_response>{TWO}</think>", [3], True),
        ("<tool_response>", [], True),
        ("</tool_response>", [], False),
    ],
    ids=[
        "in a thought", "in a thought and after", "two thoughts", "thought left open", "in a response",
        "response left open", "response in a thought", "thought in a response", "only opened", "only closed",
    ],
)  # fmt: skip
def test_thoughts_and_made_up_responses_hold_no_calls(response: str, expected: list[Any], forged: bool) -> None:
    assert starts(parse_calls(response)) == expected
    assert has_forged_response(response) is forged


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('crop_video(video_path="v", start_time=1)', [((), {"video_path": "v", "start_time": 1})]),
        ('crop_video("v", 1, 2)', [(("v", 1, 2), {})]),
        ('crop_video("v", start_time=1, end_time="01:30")', [(("v",), {"start_time": 1, "end_time": "01:30"})]),
        ("crop_video(video_path, 1, 2)", [(("video_path", 1, 2), {})]),
        ("crop_video(-1, +2)", [((-1, 2), {})]),
        ("crop_video()", [((), {})]),
        ("print(crop_video(1, 2))", [((1, 2), {})]),
        ("result = crop_video(1, 2)", [((1, 2), {})]),
        ("tools.crop_video(1, 2)", [((1, 2), {})]),
        ("import tools\nx = 3\ncrop_video(1, 2)", [((1, 2), {})]),
        ("crop_video(1, 2)\ncrop_video(3, 4)", [((1, 2), {}), ((3, 4), {})]),
        ("crop_video(1, 2); crop_video(3, 4)", [((1, 2), {}), ((3, 4), {})]),
        ("\ncrop_video(\n    start_time=1,\n    end_time=2,\n)\n", [((), {"start_time": 1, "end_time": 2})]),
        ("crop_video(1, 2)\ncrop_video(3,\ncrop_video(5, 6)", [((1, 2), {}), Fault.BAD_PYTHON, ((5, 6), {})]),
        ("crop_video(start, 2)", [Fault.BAD_PYTHON]),
        ("crop_video(*[1, 2])", [Fault.BAD_PYTHON]),
        ("crop_video(open('x').read(), 2)", [Fault.BAD_PYTHON]),
        ("crop_video(2 ** 9, 2)", [Fault.BAD_PYTHON]),
        ("", [Fault.BAD_PYTHON]),
        ("look at the start", [Fault.BAD_PYTHON]),
        ("x = 1", [Fault.BAD_PYTHON]),
        ('{"name": "crop_video"}', [Fault.BAD_PYTHON]),
        ("(" * 10_000, [Fault.BAD_PYTHON]),
        ("-" * 10_000 + "1", [Fault.BAD_PYTHON]),
        ("crop_video(\x00)", [Fault.BAD_PYTHON]),
    ],
    ids=[
        "keywords", "positions", "mixed", "path as a name", "signs", "no arguments", "print", "assignment", "attribute",
        "other statements", "two lines", "semicolon", "one call over lines", "one broken line", "a name", "starred",
        "a call", "an expression", "empty", "prose", "no call", "JSON", "brackets", "deep", "null character",
    ],
)  # fmt: skip
def test_the_python_form_is_read_and_never_run(code: str, expected: list[Any]) -> None:
    calls = parse_calls(f"<tool_code>{code}</tool_code>")
    assert [call.fault or (call.positional, call.arguments) for call in calls] == expected
    assert {call.syntax for call in calls} == {"tool_code"}
    assert {call.name for call in calls if not call.fault} <= {"crop_video"}
    assert all(call.message and "\n" not in call.message for call in calls if call.fault)


def test_nan_and_inf_are_values_in_both_forms() -> None:
    calls = parse_calls("<tool_code>crop_video(inf, nan)</tool_code>" + block({"start_time": float("inf")}))
    assert [str(value) for value in calls[0].positional] == ["inf", "nan"]
    assert calls[1].arguments == {"start_time": float("inf")}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TAGS = [f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_code", "tool_response") for slash in ("", "/")]
PIECES = (
    st.sampled_from([*TAGS, ONE, '{"name": "x", "arguments": {', '"', "}", "crop_video(", "1, 2)", "\n"]) | st.text()
)
STRINGS_WITH_TAGS = st.lists(st.sampled_from(TAGS) | st.text(max_size=5), max_size=4).map("".join)
ARGUMENTS = st.dictionaries(st.text(), JSON | STRINGS_WITH_TAGS, max_size=4)
JUNK = st.text().map(lambda text: text.replace("<", ""))
CALL = st.tuples(st.text(), ARGUMENTS)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_no_text_is_too_broken_to_be_read(text: str) -> None:
    for call in parse_calls(text):
        assert call.raw in text
        assert (call.fault is None) == (call.message == "")
    has_forged_response(text)


def written(calls: list[tuple[str, dict[str, Any]]], junk: list[str]) -> str:
    blocks = [block(arguments, name) for name, arguments in calls]
    return "".join(text for pair in zip(junk, [*blocks, ""], strict=True) for text in pair)


@given(st.data(), st.lists(CALL, max_size=5))
def test_well_formed_calls_among_any_words_are_exactly_the_calls(data: st.DataObject, calls: list[Any]) -> None:
    junk = data.draw(st.lists(JUNK, min_size=len(calls) + 1, max_size=len(calls) + 1))
    read = parse_calls(written(calls, junk))
    assert [(call.name, call.arguments) for call in read] == calls
    assert all(call.fault is None and call.repairs == () for call in read)


BROKEN = [
    "<tool_call>",
    "<tool_call>{</tool_call>",
    '<tool_call>{"name": "x',
    "<tool_code>f(</tool_code>",
    "<tool_response>",
]


@given(st.lists(CALL, min_size=1, max_size=3), JUNK, st.sampled_from(BROKEN))
def test_a_broken_block_changes_none_of_the_others(calls: list[Any], junk: str, broken: str) -> None:
    whole = written(calls, [junk] * (len(calls) + 1))
    assert parse_calls(whole + broken)[: len(calls)] == parse_calls(whole)
    assert parse_calls(broken.replace("<tool_response>", "") + whole)[-len(calls) :] == parse_calls(whole)
