"""The prompts of reinforcement learning, each with its right answer, and the source of their frames."""

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol

from paravt_infer.errors import SettingsError
from paravt_infer.protocols import get_protocol
from paravt_infer.questions import Question
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.source import FrameSource
from paravt_infer.video.store import VideoStore
from paravt_training.data.parquet import ParquetSource
from paravt_training.data.rows import ConversationRow, InvalidRow, message_media, message_text
from paravt_training.recipe import ParquetData, WorldData
from paravt_training.rewards.accuracy import GoldAnswer
from paravt_training.world.augmentation import Augmentation
from paravt_training.world.drawn_frames import DrawnFrames
from paravt_training.world.questions import WorldQuestion, question_at
from paravt_training.world.scene import Scene


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A question to make rollouts of."""

    id: str
    """The same at each visit; gating draws by it."""
    question: Question
    gold: GoldAnswer
    seen_by_overview: dict[int, bool] = field(default_factory=dict)
    """Frame budget to whether the overview shows the evidence, where known (the Tool Necessity Gap)."""


class Prompts(Protocol):
    """An infinite sequence of prompts."""

    frame_source: FrameSource
    """Frames of their videos; closed by the engine."""

    def prompt(self, number: int) -> Prompt:
        """Prompt `number`, the same in every process.

        Raises:
            SettingsError: it cannot be used; the message names it.
        """


class WorldPrompts:
    """Questions of the sample world's `rl` split; frames are drawn, no files are read."""

    def __init__(self, data: WorldData):
        self.data = data
        self.drawn = DrawnFrames(self._augmentation)
        self.frame_source: FrameSource = self.drawn

    def prompt(self, number: int) -> Prompt:
        return self.add(question_at(self.data.seed, "rl", number))

    def add(self, item: WorldQuestion) -> Prompt:
        """Any question of the sample world as a prompt; its scene is added to the frame source."""
        self.drawn.add(item.question.video, item.scene)
        return prompt_of(item)

    def _augmentation(self, scene: Scene) -> Augmentation:
        return Augmentation(self.data, scene.seed)


def prompt_of(item: WorldQuestion) -> Prompt:
    """A question of the sample world as a prompt; its video is the scene's name."""
    question = item.question
    return Prompt(
        id=question.id,
        question=question,
        gold=GoldAnswer(answer=item.answer, kind=question.kind, options=question.options),
        seen_by_overview=item.seen_by_overview,
    )


class ParquetPrompts:
    """Rows of Parquet files in the paper's layout: a question, its video and, in `extra_info`, the right answer."""

    def __init__(self, data: ParquetData):
        self.rows = ParquetSource(data, multiple=1)  # its frames are not used
        self.frame_source: FrameSource = VideoStore(DecodePool())
        self._lock = Lock()  # several threads ask for prompts

    def prompt(self, number: int) -> Prompt:
        with self._lock:
            row = self.rows.row(number)
        if isinstance(row, InvalidRow):
            raise SettingsError(str(row))
        where = f"{row.file}, row {row.number}"
        videos = [
            part["video"] for message in row.messages for part in message_media(message) if part["type"] == "video"
        ]
        videos = videos or row.videos
        if not videos:
            raise SettingsError(f"{where}: has no video; add one or leave the row out")
        user_messages = [message for message in row.messages if message["role"] == "user"]
        if not user_messages:
            raise SettingsError(f"{where}: has no question (no user message); add one or leave the row out")
        options = row.info.get("options") or []
        try:
            question = Question.make(
                video=str(self.rows.folders.resolve(videos[0], row.file)),
                text=str(row.info.get("question") or message_text(user_messages[-1]).strip()),
                options=options if row.kind == "choice" else [],
                kind=row.kind if options or row.kind != "choice" else "open",
                id=str(row.info.get("id") or f"{row.file.stem}-{row.number}"),
            )
            # The row may hold the text with options and what a protocol adds; they must not be there twice.
            added = get_protocol("paravt").question_text(question).removeprefix(question.text)
            question = question.model_copy(update={"text": question.text.removesuffix(added)})
            # A choice whose options are only in its text is asked as it is written, and answered by a letter.
            gold = GoldAnswer(answer=row.answer, kind=row.kind, options=question.options)  # type: ignore[arg-type]
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from None
        return Prompt(id=question.id, question=question, gold=gold, seen_by_overview=_seen(row))


def _seen(row: ConversationRow) -> dict[int, bool]:
    seen: dict[str, Any] = row.info.get("seen_by_overview") or {}
    return {int(budget): bool(shown) for budget, shown in seen.items() if shown is not None}


def open_prompts(data: WorldData | ParquetData) -> Prompts:
    return WorldPrompts(data) if isinstance(data, WorldData) else ParquetPrompts(data)
