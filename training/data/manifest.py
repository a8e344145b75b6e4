"""Manifests of mixes: which rows of which files, and what fraction of them calls tools; checked before reading rows.

A manifest is a YAML file, in `training/recipes` or anywhere else:

    name: small
    tool_fraction: 0.3
    sources:
      - {name: chat, files: [chat.parquet], tool: false, count: 700}
      - {name: traces, files: ["traces/*.parquet"], tool: true, count: 300}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml  # type: ignore[import-untyped]
from pydantic import Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel, validation_message
from paravt_training.recipe import FOLDER


class ManifestSource(FrozenModel):
    """One source of rows."""

    name: str = Field(min_length=1)
    """Written into each of its rows, as `extra_info.source`."""
    files: list[str] = Field(min_length=1)
    """Parquet files; `*` and `**` are wildcards."""
    tool: bool
    """Whether its rows contain tool calls: all of them, or none."""
    count: int | None = Field(default=None, ge=1)
    """How many of its rows to take; all of them where neither this nor a weight is given."""
    weight: float | None = Field(default=None, gt=0)
    """Its share of the rows with calls, or of those without; the manifest's `rows` is the total."""


class Manifest(FrozenModel):
    """A mix: counts of its sources, or their weights and the number of rows."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    """The prefix of its files."""
    seed: int = Field(default=0, ge=0)
    """Seed of the choice of rows and the order of sources."""
    rows: int | None = Field(default=None, ge=1)
    """Rows of all sources together; required with weights."""
    tool_fraction: float | None = Field(default=None, ge=0, le=1)
    """The fraction of rows with tool calls; None leaves it to the counts or weights."""
    tolerance: float = Field(default=0.005, ge=0, lt=1)
    """How far the fraction may be off, as counts are whole numbers."""
    short: float = Field(default=0.0, ge=0, lt=1)
    """The fraction of its count by which a source may fall short."""
    shard_rows: int = Field(default=10_000, ge=1)
    """Rows per file written."""
    sources: list[ManifestSource] = Field(min_length=1)

    @model_validator(mode="after")
    def _uses_counts_or_weights(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"sources: a name is repeated ({', '.join(names)})")
        weighted = [source.name for source in self.sources if source.weight is not None]
        if weighted and len(weighted) < len(names):
            raise ValueError(f"sources: give all of them a weight, or none; only {', '.join(weighted)} has one")
        if any(source.count and source.weight for source in self.sources):
            raise ValueError("sources: give a count or a weight, not both")
        if bool(weighted) != (self.rows is not None):
            raise ValueError("rows and weights go together: weights divide the number of rows")
        return self

    def allocate(self, available: Mapping[str, int]) -> dict[str, int]:
        """The number of rows from each source.

        Args:
            available: rows in each source's files.

        Raises:
            SettingsError: the rows or the stated fraction are not available; says what is.

        >>> sources = [{"name": n, "files": ["-"], "tool": n == "traces", "weight": 1} for n in ("chat", "traces")]
        >>> Manifest(name="m", rows=10, tool_fraction=0.3, sources=sources).allocate({"chat": 99, "traces": 99})
        {'chat': 7, 'traces': 3}
        """
        return self._by_weight(available, self.rows) if self.rows is not None else self._by_count(available)

    def _by_count(self, available: Mapping[str, int]) -> dict[str, int]:
        shares = {}
        for source in self.sources:
            wanted = available[source.name] if source.count is None else source.count
            shares[source.name] = min(wanted, available[source.name])
            if not wanted:
                raise SettingsError(f"source {source.name}: its files have no rows; choose others")
            if shares[source.name] < wanted * (1 - self.short):
                minimum = f" (at least {wanted * (1 - self.short):,.0f})" if self.short else ""
                raise SettingsError(
                    f"source {source.name}: {wanted:,} rows are required{minimum}, but its files have "
                    f"{available[source.name]:,}; add files or lower its count"
                )
        with_calls, rows, fraction = self.rows_with_calls(shares), sum(shares.values()), self.tool_fraction
        if fraction is not None and abs(with_calls / rows - fraction) > self.tolerance:
            others = rows - with_calls
            remedies = []
            if fraction > 0 and with_calls:
                remedies.append(f"{round(with_calls / fraction) - with_calls:,} rows without calls")
            if fraction < 1 and others:
                remedies.append(f"{round(others / (1 - fraction)) - others:,} rows with calls")
            raise SettingsError(
                f"tool_fraction {fraction:g} cannot be met: {with_calls:,} of these {rows:,} rows have calls, "
                f"{with_calls / rows:.3f}; use {' or '.join(remedies) or 'a source of the other kind'}"
            )
        return shares

    def rows_with_calls(self, shares: Mapping[str, int]) -> int:
        """How many of the allocated rows are from sources with tool calls."""
        return sum(shares[source.name] for source in self.sources if source.tool)

    def _by_weight(self, available: Mapping[str, int], rows: int) -> dict[str, int]:
        weights = {source.name: float(source.weight or 0) for source in self.sources}
        tools = {source.name: weights[source.name] for source in self.sources if source.tool}
        others = {name: weight for name, weight in weights.items() if name not in tools}
        fraction = sum(tools.values()) / sum(weights.values()) if self.tool_fraction is None else self.tool_fraction
        for group, share, kind in ((tools, fraction, "with"), (others, 1 - fraction, "without")):
            if share > 0 and not group:
                raise SettingsError(f"tool_fraction {fraction:g} cannot be met: add a source {kind} calls")
        with_calls = round(rows * fraction)
        shares = _divide(with_calls, tools) | _divide(rows - with_calls, others)
        lacking = [name for name, share in shares.items() if share > available[name]]
        if not lacking:
            return {name: shares[name] for name in weights}
        # The maximum number of rows of each kind at these weights.
        max_tools, max_others = (
            min((available[name] * sum(group.values()) / weight for name, weight in group.items()), default=0.0)
            for group in (tools, others)
        )
        max_rows = [max_tools / fraction] * (fraction > 0) + [max_others / (1 - fraction)] * (fraction < 1)
        low, high = max(0.0, 1 - max_others / rows), min(1.0, max_tools / rows)
        fractions = f"a tool_fraction of {low:.3f} to {high:.3f}" if low <= high else "no tool_fraction"
        raise SettingsError(
            f"tool_fraction {fraction:g} cannot be met with {rows:,} rows: source {lacking[0]} must provide "
            f"{shares[lacking[0]]:,} and has {available[lacking[0]]:,}; at these weights the files allow "
            f"{int(min(max_rows)):,} rows, and {rows:,} rows allow {fractions}"
        )


def _divide(rows: int, weights: Mapping[str, float]) -> dict[str, int]:
    """`rows` divided by weight; the largest remainders get the rest."""
    exact = {name: rows * weight / sum(weights.values()) for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: shares[name] - exact[name])[: rows - sum(shares.values())]:
        shares[name] += 1
    return shares


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
        raise SettingsError(f"{file}: no such manifest; pass a YAML file or the built-in paravt_sft_mix") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: not a YAML file ({' '.join(str(error).split())[:160]})") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: not a manifest; it must be a mapping of keys to values")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        known = (*Manifest.model_fields, *ManifestSource.model_fields)
        raise SettingsError(f"{path}: {validation_message(error, 'manifest key', known=known)}") from None
