"""Manifests of mixes: which rows of which files, and what part of them calls tools; checked before a row is read.

A manifest is a YAML file, in `training/recipes` or anywhere else:

    name: small
    tool_fraction: 0.3
    sources:
      - {name: chat, files: [chat.parquet], tool: false, count: 700}
      - {name: traces, files: ["traces/*.parquet"], tool: true, count: 300}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import validation_message
from paravt_training.recipe import FOLDER


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)


class ManifestSource(_Part):
    """Rows of one kind."""

    name: str = Field(min_length=1)
    """Written into each of its rows, as `extra_info.source`."""
    files: list[str] = Field(min_length=1)
    """Parquet files; * and ** stand for any names."""
    tool: bool
    """Whether its rows hold tool calls: all do, or none does."""
    count: int | None = Field(default=None, ge=1)
    """So many of its rows; all where neither this nor a weight is given."""
    weight: float | None = Field(default=None, gt=0)
    """Its part of the rows with calls, or of those without; the manifest's `rows` says how many there are."""


class Manifest(_Part):
    """A mix: counts for its sources, or weights and the number of rows."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """What its files are called."""
    seed: int = Field(default=0, ge=0)
    """Which rows are taken, and in what order the sources follow each other."""
    rows: int | None = Field(default=None, ge=1)
    """Of all sources together; with weights."""
    tool_fraction: float | None = Field(default=None, ge=0, le=1)
    """The part of the rows that hold tool calls; None to leave it to the counts or weights."""
    tolerance: float = Field(default=0.005, ge=0, lt=1)
    """The part may be off by so much, as counts are round numbers."""
    short: float = Field(default=0.0, ge=0, lt=1)
    """A source may have fewer rows than its count, by at most this part of it."""
    shard_rows: int = Field(default=10_000, ge=1)
    """Rows a file that is written."""
    sources: list[ManifestSource] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_way_to_count(self) -> "Manifest":
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"sources: a name is given twice ({', '.join(names)})")
        weighed = [source.name for source in self.sources if source.weight is not None]
        if weighed and len(weighed) < len(names):
            raise ValueError(f"sources: weights for all or for none; only {', '.join(weighed)} has one")
        if any(source.count and source.weight for source in self.sources):
            raise ValueError("sources: a count or a weight, not both")
        if bool(weighed) != (self.rows is not None):
            raise ValueError("rows and weights go together: rows says how many the weights share out")
        return self

    def shares(self, held: Mapping[str, int]) -> dict[str, int]:
        """How many rows each source gives.

        Args:
            held: how many rows each source's files hold.

        Raises:
            SettingsError: so many rows, or the stated fraction, cannot be had; says what could.

        >>> sources = [{"name": n, "files": ["-"], "tool": n == "traces", "weight": 1} for n in ("chat", "traces")]
        >>> Manifest(name="m", rows=10, tool_fraction=0.3, sources=sources).shares({"chat": 99, "traces": 99})
        {'chat': 7, 'traces': 3}
        """
        return self._weighed(held, self.rows) if self.rows is not None else self._counted(held)

    def _counted(self, held: Mapping[str, int]) -> dict[str, int]:
        shares = {}
        for source in self.sources:
            wanted = held[source.name] if source.count is None else source.count
            shares[source.name] = min(wanted, held[source.name])
            if not wanted:
                raise SettingsError(f"source {source.name}: its files hold no rows; name others")
            if shares[source.name] < wanted * (1 - self.short):
                allowed = f", and at least {wanted * (1 - self.short):,.0f} must be there" if self.short else ""
                raise SettingsError(
                    f"source {source.name}: {wanted:,} rows are asked for{allowed}; its files hold "
                    f"{held[source.name]:,}; name more files, or lower its count"
                )
        with_calls, rows = self.with_calls(shares), sum(shares.values())
        wanted_part = self.tool_fraction
        if wanted_part is not None and abs(with_calls / rows - wanted_part) > self.tolerance:
            others = rows - with_calls
            could = []
            if wanted_part > 0 and with_calls:
                could.append(f"{round(with_calls / wanted_part) - with_calls:,} without calls beside these")
            if wanted_part < 1 and others:
                could.append(f"{round(others / (1 - wanted_part)) - others:,} with calls beside the others")
            raise SettingsError(
                f"tool_fraction {wanted_part:g} cannot be met: {with_calls:,} of these {rows:,} rows hold calls, "
                f"{with_calls / rows:.3f}; it takes {' or '.join(could) or 'a source of the other kind'}"
            )
        return shares

    def with_calls(self, shares: Mapping[str, int]) -> int:
        """How many of the rows are of sources with tool calls."""
        return sum(shares[source.name] for source in self.sources if source.tool)

    def _weighed(self, held: Mapping[str, int], rows: int) -> dict[str, int]:
        weights = {source.name: float(source.weight or 0) for source in self.sources}
        tools = {source.name: weights[source.name] for source in self.sources if source.tool}
        others = {name: weight for name, weight in weights.items() if name not in tools}
        part = sum(tools.values()) / sum(weights.values()) if self.tool_fraction is None else self.tool_fraction
        for group, its_part, kind in ((tools, part, "with"), (others, 1 - part, "without")):
            if its_part > 0 and not group:
                raise SettingsError(f"tool_fraction {part:g} cannot be met: no source is {kind} calls; add one")
        with_calls = round(rows * part)
        shares = _shared(with_calls, tools) | _shared(rows - with_calls, others)
        lacking = [name for name, share in shares.items() if share > held[name]]
        if not lacking:
            return {name: shares[name] for name in weights}
        # The most rows of each kind that its files allow at these weights.
        most, most_others = (
            min((held[name] * sum(group.values()) / weight for name, weight in group.items()), default=0.0)
            for group in (tools, others)
        )
        fits = [most / part] * (part > 0) + [most_others / (1 - part)] * (part < 1)
        least_part, most_part = max(0.0, 1 - most_others / rows), min(1.0, most / rows)
        parts = f"a tool_fraction of {least_part:.3f} to {most_part:.3f}" if least_part <= most_part else "none"
        raise SettingsError(
            f"tool_fraction {part:g} cannot be met with {rows:,} rows: source {lacking[0]} would give "
            f"{shares[lacking[0]]:,} and holds {held[lacking[0]]:,}; at these weights its files allow "
            f"{int(min(fits)):,} rows, and {rows:,} rows allow {parts}"
        )


def _shared(rows: int, weights: Mapping[str, float]) -> dict[str, int]:
    """`rows` shared out by weight; the largest remainders get what is left over."""
    exact = {name: rows * weight / sum(weights.values()) for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: shares[name] - exact[name])[: rows - sum(shares.values())]:
        shares[name] += 1
    return shares


_KEYS = (*Manifest.model_fields, *ManifestSource.model_fields)


def load_manifest(file: str | Path) -> Manifest:
    """The manifest of a YAML file, or of that name in `training/recipes`.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    path = Path(file)
    if not path.is_file() and (FOLDER / f"{file}.yaml").is_file():
        path = FOLDER / f"{file}.yaml"
    try:
        values: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{file}: no such manifest; name a YAML file, or paravt_sft_mix, which ships") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: not a YAML file ({' '.join(str(error).split())[:160]})") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: not a manifest; it must be a mapping of keys to values")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {validation_message(error, 'manifest', known=_KEYS)}") from None
