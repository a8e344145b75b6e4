"""The record of an episode: every token, turn, call and time, to JSON and back without loss.

What happened is read from here, never guessed from text. `paravt_infer.rollout_files` writes and reads files of it.
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
    """A frame that was looked at. Never its pixels."""

    time: float
    """Seconds, from the file's timestamps."""
    width: int
    height: int
    tokens: int
    """Visual tokens it stands for; 0 where the backend does not say."""
    digest: str
    """Names the pixels."""


class GenerationRecord(RecordModel):
    """One request to the backend: what was fed since the last one, and what came back."""

    fed_ids: list[int] = []
    """Token ids fed after everything before; a frame is one placeholder id."""
    output_ids: list[int] = []
    """Token ids generated, as generated."""
    text: str = ""
    """`output_ids` as text, without the closing end-of-turn token."""
    prefix: str = ""
    """Text the turn was made to start with (the end of `fed_ids`); counts as part of the response."""
    logprobs: list[float] | None = None
    """One for each of `output_ids`, where asked for."""
    finish: Literal["stop", "length", "abort", ""] = ""
    prompt_tokens: int = 0
    """Tokens in, frames counted as what they stand for."""
    visual_tokens: int = 0
    """Of those, the frames'."""
    cached_tokens: int | None = None
    """Of `prompt_tokens`, those the server still knew; None where the backend does not say."""
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
    """`final` turns were asked for the answer and may not call."""
    calls: list[int] = []
    """Its calls, as positions in the rollout's `evidence`."""
    forged_response: bool = False
    """Whether the model wrote a tool response itself. It has no effect."""

    @property
    def response(self) -> str:
        """The whole response, its prefix included."""
        return self.prefix + self.text


class Evidence(RecordModel):
    """One tool call and what it returned."""

    turn: int
    tool: str
    raw: str
    """The call as the model wrote it."""
    syntax: Literal["tool_call", "tool_code"] = "tool_call"
    """`tool_code` is a reversion to the pretrained form."""
    repairs: list[str] = []
    """Faults of form that did not keep the call from running."""
    asked: list[float] | None = None
    """The window as asked for, in seconds; None where no two times could be read."""
    used: list[float] | None = None
    """The window looked at, inside the video."""
    clamped: bool = False
    status: Literal["waiting", "decoding", "looking", "ok", "error"] = "waiting"
    fault: str | None = None
    """The fault's name, where status is error."""
    text: str = ""
    """What the main agent was told: the summary, the error, or a line about the frames."""
    cut: bool = False
    """Whether the summary met its token limit."""
    frames: list[FrameRef] = []
    sub_agent: GenerationRecord | None = None
    """The sub-agent's request, where evidence is text."""
    started: float = 0.0
    """Seconds since the episode's start."""
    decode_seconds: float = 0.0
    seconds: float = 0.0


class Usage(RecordModel):
    """Tokens and seconds of the whole episode. `paravt_infer.budget` fills it."""

    prompt_tokens: int = 0
    """Tokens in, summed over all main turns and sub-agents."""
    visual_tokens: int = 0
    """Of those, the frames'."""
    output_tokens: int = 0
    cached_tokens: int = 0
    main_visual_tokens: int = 0
    """Visual tokens in the main context at its end."""
    main_prompt_tokens: int = 0
    """Tokens in, summed over the main turns: what T_seq and T_par predict."""
    calls: int = 0
    calls_ok: int = 0
    tool_turns: int = 0
    predicted_sequential: float = 0.0
    """T_seq of the paper's token budget for this many calls, with this overview's visual tokens."""
    predicted_parallel: float = 0.0
    """T_par, likewise."""
    seconds: float = 0.0
    critical_path_seconds: float = 0.0
    """The longest chain of decoding and generation: what a loop without any cost of its own would take."""


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
    """SHA-256 of everything the protocol says and reads."""


class BackendRecord(RecordModel):
    name: str = ""
    model: str = ""
    fingerprint: str = ""
    """Of the model's folder, where it is one on this machine: its files' names, sizes and times."""
    exact_tokens: bool = False
    context_limit: int | None = None
    servers: list[str] = []
    notes: list[str] = []


class Rollout(RecordModel):
    """One question answered, or not, and how."""

    answer: str | None = None
    """The answer: a letter for a choice, else text. None where there is none."""
    evidence: list[Evidence] = []
    """Every call of the episode, in order."""
    turns: list[Turn] = []
    usage: Usage = Usage()
    settings: Settings = Settings()
    status: Literal["running", "answered", "no_answer", "failed", "cancelled"] = "running"
    error: str | None = None
    """One line, where status is failed."""
    answer_text: str | None = None
    """What the answer was read from, unshortened."""
    answer_source: str | None = None
    """`answer_block`, `after_think` or `last_line`."""
    question: Question
    video: VideoRecord | None = None
    overview: list[FrameRef] = []
    overview_seconds: float = 0.0
    protocol: ProtocolRecord | None = None
    backend: BackendRecord = BackendRecord()
    reader: str = ""
    """What decoded the frames."""
    versions: dict[str, str] = {}
    id: str = ""
    started_at: str = ""
    """UTC, ISO 8601."""
    schema_version: int = SCHEMA_VERSION

    def input_ids(self, turn: int) -> list[int]:
        """All ids fed and generated before turn `turn` generated anything: its prompt, frames as one id each."""
        ids: list[int] = []
        for earlier in self.turns[:turn]:
            ids += earlier.fed_ids + earlier.output_ids
        return ids + self.turns[turn].fed_ids

    @property
    def supporting_evidence(self) -> list[Evidence]:
        """The evidence the answer rests on: calls that ran."""
        return [call for call in self.evidence if call.status == "ok"]


def rollout_to_json(rollout: Rollout, *, indent: int | None = None) -> str:
    try:
        return rollout.model_dump_json(indent=indent)
    except PydanticSerializationError:
        return Rollout.model_validate(utf8_safe(rollout.model_dump())).model_dump_json(indent=indent)


def utf8_safe(value: Any) -> Any:
    """`value` with its texts as UTF-8 can hold them: a file's name or a server's JSON may have half a pair."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {utf8_safe(key): utf8_safe(item) for key, item in value.items()}
    return [utf8_safe(item) for item in value] if isinstance(value, (list, tuple)) else value


def rollout_from_json(text: str | bytes, *, where: str = "rollout") -> Rollout:
    """Raises SettingsError where the text is no rollout."""
    try:
        return Rollout.model_validate_json(text)
    except ValidationError as error:
        raise SettingsError(f"{where}: not a saved rollout ({validation_message(error, 'field')})") from None
