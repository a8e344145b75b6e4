"""The record of an episode: every token, turn, call and time, to JSON and back without loss.

What happened is read from the record, never guessed from text. `paravt_infer.rollout_files` reads and writes files.
"""

from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.schema import RecordModel, validation_message
from paravt_infer.settings import Settings

SCHEMA_VERSION = 1


class FrameRef(RecordModel):
    """A frame that the model saw, without its pixels."""

    time: float
    """Seconds, from the file's timestamps."""
    width: int
    height: int
    tokens: int
    """Visual tokens of the frame; 0 where the backend does not know."""
    digest: str
    """A hash of the pixels."""


class GenerationRecord(RecordModel):
    """One request to the backend: what was fed since the previous one, and what was generated."""

    fed_ids: list[int] = []
    """Token ids appended to the context; a frame is one placeholder id."""
    output_ids: list[int] = []
    """Generated token ids."""
    text: str = ""
    """`output_ids` as text, without the closing end-of-turn token."""
    prefix: str = ""
    """Text that the turn was made to start with (the end of `fed_ids`); part of the response."""
    logprobs: list[float] | None = None
    """One per output id, if requested."""
    finish: Literal["stop", "length", "abort", ""] = ""
    prompt_tokens: int = 0
    """Prompt tokens, with each frame counted as its visual tokens."""
    visual_tokens: int = 0
    """Those of `prompt_tokens` that are frames."""
    cached_tokens: int | None = None
    """Those of `prompt_tokens` that came from the prefix cache; None where the backend does not report it."""
    weight_version: str | None = None
    server: str | None = None
    request_id: str = ""
    attempts: int = 1
    started: float = 0.0
    """Seconds since the episode's start."""
    seconds: float = 0.0


class Turn(GenerationRecord):
    """One turn of the main agent."""

    kind: Literal["main", "final"] = "main"
    """In a `final` turn the model is asked for its answer and must not call."""
    calls: list[int] = []
    """Indices of its calls in the rollout's `evidence`."""
    forged_response: bool = False
    """Whether the model wrote a tool response itself, which has no effect."""

    @property
    def response(self) -> str:
        """The whole response, including its prefix."""
        return self.prefix + self.text


class Evidence(RecordModel):
    """One tool call and what it returned."""

    turn: int
    tool: str
    raw: str
    """The call as the model wrote it."""
    syntax: Literal["tool_call", "tool_code"] = "tool_call"
    """`tool_code` is a reversion to the form of pretraining."""
    repairs: list[str] = []
    """Faults of form despite which the call ran."""
    asked: list[float] | None = None
    """The requested window, in seconds; None where it could not be parsed."""
    used: list[float] | None = None
    """The window that was inspected, inside the video."""
    clamped: bool = False
    status: Literal["waiting", "decoding", "looking", "ok", "error"] = "waiting"
    fault: str | None = None
    """A `ToolCallFault`, if status is error."""
    text: str = ""
    """What the main agent was given: the summary, the error, or a line about the frames."""
    cut: bool = False
    """Whether the summary was truncated at its token limit."""
    frames: list[FrameRef] = []
    sub_agent: GenerationRecord | None = None
    """The sub-agent's request, if evidence is text."""
    started: float = 0.0
    """Seconds since the episode's start."""
    decode_seconds: float = 0.0
    seconds: float = 0.0


class Usage(RecordModel):
    """Tokens and seconds of the whole episode. `paravt_infer.budget` fills it."""

    prompt_tokens: int = 0
    """Prompt tokens, summed over all main turns and sub-agents."""
    visual_tokens: int = 0
    """Those of `prompt_tokens` that are frames."""
    output_tokens: int = 0
    cached_tokens: int = 0
    main_visual_tokens: int = 0
    """Visual tokens in the final main context."""
    main_prompt_tokens: int = 0
    """Prompt tokens, summed over the main turns: what T_seq and T_par predict."""
    calls: int = 0
    calls_ok: int = 0
    tool_turns: int = 0
    predicted_sequential: float = 0.0
    """T_seq of the paper's token budget, for this number of calls and this overview's visual tokens."""
    predicted_parallel: float = 0.0
    """T_par, likewise."""
    seconds: float = 0.0
    critical_path_seconds: float = 0.0
    """The longest chain of decoding and generation: the episode's time without any overhead."""


class VideoRecord(RecordModel):
    """The video as probed."""

    path: str
    duration: float
    fps: float
    width: int
    height: int
    rotation: int
    codec: str
    size_bytes: int


class ProtocolRecord(RecordModel):
    name: str
    checksum: str
    """SHA-256 of the protocol's prompts; see `ChatProtocol.checksum`."""


class BackendRecord(RecordModel):
    name: str = ""
    model: str = ""
    fingerprint: str = ""
    """For a local model folder, a hash of its files' names, sizes and times; else empty."""
    exact_tokens: bool = False
    context_limit: int | None = None
    servers: list[str] = []
    notes: list[str] = []


class Rollout(RecordModel):
    """The record of one episode: a question, how it was answered, and at what cost."""

    answer: str | None = None
    """A letter for multiple choice, else text; None if there is no answer."""
    evidence: list[Evidence] = []
    """Every call of the episode, in order."""
    turns: list[Turn] = []
    usage: Usage = Usage()
    settings: Settings = Settings()
    status: Literal["running", "answered", "no_answer", "failed", "cancelled"] = "running"
    error: str | None = None
    """One line, if status is failed."""
    answer_text: str | None = None
    """The full text that `answer` was extracted from."""
    answer_source: str | None = None
    """`answer_block`, `after_think` or `last_line`."""
    question: Question
    video: VideoRecord | None = None
    overview: list[FrameRef] = []
    overview_seconds: float = 0.0
    protocol: ProtocolRecord | None = None
    backend: BackendRecord = BackendRecord()
    reader: str = ""
    """The frame source's name, such as `pyav`."""
    versions: dict[str, str] = {}
    id: str = ""
    started_at: str = ""
    """UTC, ISO 8601."""
    schema_version: int = SCHEMA_VERSION

    def input_ids(self, turn: int) -> list[int]:
        """The prompt of main turn `turn`: all ids fed and generated before its output, with one id per frame."""
        ids: list[int] = []
        for earlier in self.turns[:turn]:
            ids += earlier.fed_ids + earlier.output_ids
        return ids + self.turns[turn].fed_ids

    @property
    def supporting_evidence(self) -> list[Evidence]:
        """The calls that ran successfully: the evidence for the answer."""
        return [call for call in self.evidence if call.status == "ok"]


def rollout_to_json(rollout: Rollout, *, indent: int | None = None) -> str:
    """The rollout as one JSON object."""
    try:
        return rollout.model_dump_json(indent=indent)
    except PydanticSerializationError:
        return Rollout.model_validate(utf8_safe(rollout.model_dump())).model_dump_json(indent=indent)


def utf8_safe(value: Any) -> Any:
    """`value` with lone surrogates in its strings escaped; file names and servers' JSON may contain some."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {utf8_safe(key): utf8_safe(item) for key, item in value.items()}
    return [utf8_safe(item) for item in value] if isinstance(value, (list, tuple)) else value


def rollout_from_json(text: str | bytes, *, where: str = "rollout") -> Rollout:
    """Parse a rollout. Raises SettingsError, starting with `where`, if the text is not one."""
    try:
        return Rollout.model_validate_json(text)
    except ValidationError as error:
        raise SettingsError(f"{where}: not a saved rollout ({validation_message(error, 'field')})") from None
