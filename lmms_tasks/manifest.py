"""What lmms-eval finds under the entry point `lmms_eval.models`: the model id `paravt`."""

from typing import Any


def manifest() -> Any:
    """The adapter's entry in lmms-eval's registry."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(model_id="paravt", chat_class_path="lmms_tasks.adapter.ParavtModel")
