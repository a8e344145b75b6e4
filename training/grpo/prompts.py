"""What reinforcement learning asks: prompts by number, each with its right answer, and where their frames come from."""

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
    """A question of which rollouts are made."""

    id: str
    """The same at each visit: gating draws by it."""
    question: Question
    gold: GoldAnswer
    seen_by_overview: dict[int, bool] = field(default_factory=dict)
    """Budget to whether the overview shows the evidence, where that is known: the Tool Necessity Gap."""


class Prompts(Protocol):
    """Prompts by number, without end."""

    frame_source: FrameSource
    """Where their frames come from; closed by the engine."""

    def prompt(self, number: int) -> Prompt:
        """Prompt `number`: the same in every process.

        Raises:
            SettingsError: it cannot be used; names it.
        """


class WorldPrompts:
    """Questions of the sample world's `rl` split; frames are drawn, no file is read."""

    def __init__(self, data: WorldData):
        self.data = data
        self.drawn = DrawnFrames(self._wear)
        self.frame_source: FrameSource = self.drawn

    def prompt(self, number: int) -> Prompt:
        return self.ask(question_at(self.data.seed, "rl", number))

    def ask(self, asked: WorldQuestion) -> Prompt:
        """Any question of the sample world as a prompt, its scene ready to be drawn."""
        self.drawn.add(asked.question.video, asked.scene)
        return prompt_of(asked)

    def _wear(self, scene: Scene) -> Augmentation:
        return Augmentation(self.data, scene.seed)


def prompt_of(asked: WorldQuestion) -> Prompt:
    """A question of the sample world as a prompt; its video is the scene's name."""
    question = asked.question
    return Prompt(
        id=question.id,
        question=question,
        gold=GoldAnswer(answer=asked.answer, kind=question.kind, options=question.options),
        seen_by_overview=asked.seen_by_overview,
    )


class ParquetPrompts:
    """Rows of Parquet files in the paper's layout: a question, its video and, in `extra_info`, the right answer."""

    def __init__(self, data: ParquetData):
        self.rows = ParquetSource(data, multiple=1)  # no frame is read through it
        self.frame_source: FrameSource = VideoStore(DecodePool())
        self._one = Lock()  # prompts are asked for on several threads

    def prompt(self, number: int) -> Prompt:
        with self._one:
            row = self.rows.row(number)
        if isinstance(row, InvalidRow):
            raise SettingsError(str(row))
        where = f"{row.file}, row {row.number}"
        videos = [
            part["video"] for message in row.messages for part in message_media(message) if part["type"] == "video"
        ]
        videos = videos or row.videos
        if not videos:
            raise SettingsError(f"{where}: names no video")
        asked = [message for message in row.messages if message["role"] == "user"]
        if not asked:
            raise SettingsError(f"{where}: asks nothing (it has no message of the user's)")
        options = row.info.get("options") or []
        try:
            question = Question.make(
                video=str(self.rows.folders.resolve(videos[0], row.file)),
                text=str(row.info.get("question") or message_text(asked[-1]).strip()),
                options=options if row.kind == "choice" else [],
                kind=row.kind if options or row.kind != "choice" else "open",
                id=str(row.info.get("id") or f"{row.file.stem}-{row.number}"),
            )
            # The row may hold it as it was asked; options and what a protocol adds must not stand there twice.
            added = get_protocol("paravt").question_text(question).removeprefix(question.text)
            question = question.model_copy(update={"text": question.text.removesuffix(added)})
            # A choice whose options stand in its text alone is asked as it is written, and answered by a letter.
            gold = GoldAnswer(answer=row.answer, kind=row.kind, options=question.options)  # type: ignore[arg-type]
        except SettingsError as error:
            raise SettingsError(f"{where}: {error}") from None
        return Prompt(id=question.id, question=question, gold=gold, seen_by_overview=_seen(row))


def _seen(row: ConversationRow) -> dict[int, bool]:
    seen: dict[str, Any] = row.info.get("seen_by_overview") or {}
    return {int(budget): bool(shown) for budget, shown in seen.items() if shown is not None}


def open_prompts(data: WorldData | ParquetData) -> Prompts:
    return WorldPrompts(data) if isinstance(data, WorldData) else ParquetPrompts(data)
