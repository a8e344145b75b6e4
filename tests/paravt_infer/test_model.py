"""A model's files are read without its weights, and each way that this fails is one line that says what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

from paravt_infer.errors import ModelError
from paravt_infer.model import load_model_files, load_pretrained


def fault(model: object, action: Callable[[str], Any] = load_model_files) -> str:
    with pytest.raises(ModelError) as raised:
        action(str(model))
    line = str(raised.value)
    assert line.startswith(f"{model}: ")
    assert "\n" not in line
    return line.removeprefix(f"{model}: ")


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint's files without its weights, to be changed."""
    return Path(shutil.copytree(tiny, tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors")))


def test_what_the_engine_needs_is_read_without_weights(copied: Path) -> None:
    files = load_model_files(str(copied))
    assert files.name == str(copied)
    assert (files.multiple, files.min_pixels, files.max_pixels) == (32, 65536, 16777216)
    assert files.context_limit == 32768
    tokenizer = files.chat.tokenizer
    assert files.chat.image_token_id == tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert set(tokenizer.convert_ids_to_tokens(files.chat.media_token_ids)) == {
        "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>",
    }  # fmt: skip
    assert tokenizer.convert_ids_to_tokens(files.chat.end_ids) == ["<|im_end|>", "<|endoftext|>"]


@pytest.mark.parametrize("model", ["/no/such/folder", "./models/none", "../none", "~/none", "a/b/c"])
def test_a_path_that_is_not_there_is_no_model_folder(model: str) -> None:
    assert fault(model) == "no such model folder; check the path, or give a hub id"


def test_a_folder_or_file_that_is_no_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "not a model folder that transformers can load" in fault(tmp_path)
    assert "not a model folder that transformers can load" in fault(tmp_path / "notes.txt")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"model_type": "no_such_type"}'])
def test_a_config_that_is_none_says_so(copied: Path, content: str) -> None:
    (copied / "config.json").write_text(content)
    assert "not a model folder that transformers can load" in fault(copied)


def test_a_folder_without_its_tokenizer_or_image_processor_says_so(copied: Path) -> None:
    """transformers itself makes an empty tokenizer where there is none."""
    (copied / "tokenizer.json").unlink()
    assert fault(copied) == "its tokenizer has no image token; check that all tokenizer files are there"
    (copied / "preprocessor_config.json").unlink()
    assert "not a model folder that transformers can load" in fault(copied)


def test_a_text_model_is_not_of_the_kind(copied: Path) -> None:
    text_only = {"model_type": "qwen2", "vocab_size": 576, "hidden_size": 8, "num_attention_heads": 1}
    (copied / "config.json").write_text(json.dumps(text_only))
    assert fault(copied) == "type qwen2 is not supported; choose a vision-language model of the Qwen-VL family"
    (copied / "preprocessor_config.json").unlink()
    assert "not a model folder that transformers can load" in fault(copied)


def test_a_template_in_an_older_checkpoints_file_is_found(copied: Path) -> None:
    template = (copied / "chat_template.jinja").read_text()
    (copied / "chat_template.jinja").unlink()
    (copied / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    assert load_model_files(str(copied)).chat.tokenizer.chat_template == template


@pytest.mark.parametrize("content", [None, "{", "{}", "[]"], ids=["none", "broken", "empty", "array"])
def test_a_model_without_a_template_is_named(
    copied: Path, content: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *names: asked.append(names))
    (copied / "chat_template.jinja").unlink()
    if content is not None:
        (copied / "chat_template.json").write_text(content)
    assert fault(copied) == "has no chat template; choose an instruction-tuned model"
    assert asked == []  # a folder's template is not looked for on the hub


class GatedRepoError(Exception):
    """Named as the hub's."""


class RepositoryNotFoundError(Exception):
    """Named as the hub's."""


def caused(cause: Exception) -> OSError:
    error = OSError("Can't load the configuration\nof that model")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (caused(RepositoryNotFoundError("404 Client Error")), "not on the hub; check the name"),
        (caused(GatedRepoError("403")), "not on the hub, or you do not have access"),
        (caused(RepositoryNotFoundError("401 Client Error")), "not on the hub, or you do not have access"),
        (caused(ConnectionError("no route")), "the hub cannot be reached; give a folder, or check the network"),
        (OSError(), "the hub cannot be reached"),
        (MemoryError(), "not enough memory to load it"),
        (RuntimeError("CUDA out of memory. Tried to"), "not enough memory to load it"),
    ],
    ids=["unknown", "gated", "unauthorised", "offline", "no message", "memory", "GPU memory"],
)
def test_a_failed_load_from_the_hub_says_what_it_means(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    assert says in fault("someone/some-model", lambda model: load_pretrained(model, "AutoConfig"))


def test_a_failure_without_a_message_is_told_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise KeyError

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    line = fault(tmp_path, lambda model: load_pretrained(model, "AutoConfig"))
    assert line == "not a model folder that transformers can load (KeyError)"
