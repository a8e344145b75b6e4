"""Griffe extension: this project's docstrings as Markdown.

Shape notes (`# [tokens, 3]`) would become headings, doctests would become links, and `Example::` is reStructuredText.
"""

import re
from typing import Any

from griffe import Class, Extension, Object

_SHAPES = re.compile(r"# (\[[^\]\n]*\](?:(?:, | to | -> )(?:# )?(?:\[[^\]\n]*\]|int\d+|the same))*)")
_LITERAL = re.compile(r"^( *)(\S.*)::$", re.MULTILINE)
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*|\n\1 +\S.*)*", re.MULTILINE)


class ProjectDocstrings(Extension):
    """Rewrites each docstring as it is loaded, and leaves out attributes that `__init__` sets without a word."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _SHAPES.sub(lambda note: f"`{note[1].replace('# ', '')}`", obj.docstring.value)
            text = _LITERAL.sub(r"\1\2:\n", text).replace("Example:\n", "**Example**\n")
            obj.docstring.value = _DOCTEST.sub(r"\n\1```pycon\n\g<0>\n\1```", text)

    def on_class_members(self, *, cls: Class, **_: Any) -> None:
        for name, member in list(cls.attributes.items()):
            if member.value is not None and member.labels == {"instance-attribute"} and member.docstring is None:
                del cls.members[name]
