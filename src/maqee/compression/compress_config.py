"""Everything that decides a compression, from a YAML file, from key=value and from single values, the last ones first.

Three sections hold what `maqee.compress` takes as three arguments:

    budget: {max_drop: 0.01}
    search: {act_max: 6, grain: block}
    options: {method: erq, quantization: {patch: 8/8}, recovery: {lr: 1.0e-5}, risk: {method: crc, epsilon: 0.02}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from maqee.apq import Budget, SearchOptions
from maqee.apq._older import current_request, with_scores
from maqee.compression.compress_options import CompressOptions
from maqee.compression.request import FORMAT as REQUEST_FORMAT
from maqee.compression.request import VERSION as REQUEST_VERSION
from maqee.errors import MaqeeError, suggest
from maqee.quant.settings import Bits, parse_bits
from maqee.validation import explain, field_types, inner_type, key_path, unknown_key
from maqee.yaml_files import read_yaml, split_assignment

Section = TypeVar("Section")
SOLVER = "search.solver"  # short for first_move and last_search
_BITS = ("patch", "classifier", "heads")


@dataclass(frozen=True, kw_only=True)
class CompressConfig:
    """What is asked of a compression, and how it is done.

    Attributes:
        budget: the most cost or the least metric, and where it counts.
        search: how to search.
        options: everything else that decides the result.
    """

    budget: Budget = field(default_factory=Budget)
    search: SearchOptions = field(default_factory=SearchOptions)
    options: CompressOptions = field(default_factory=CompressOptions)


@dataclass(frozen=True)
class _Layer:
    """Values with the words that name where they come from; none for what the caller gave directly."""

    source: str
    values: dict[str, Any]


def read_compress_config(
    path: str | Path | None = None, assignments: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> CompressConfig:
    """Put a configuration together; what is said nowhere keeps its default, and `scored` is half of `samples`.

    Args:
        path: a YAML file with the sections budget, search and options; or the request.json of a run, to repeat it.
        assignments: "key=value", stronger than the file; the key dotted, or only its end where that is clear.
        values: by dotted key, strongest of all; None is not said.
    """
    layers = [] if path is None else [_Layer(f"{path}: ", _read_file(Path(path)))]
    for text in assignments:
        key, value = split_assignment(text, "search.alpha=0.5")
        layers.append(_Layer(f"{text!r}: ", _nested(find_key(key), value)))
    layers += [_Layer("", _nested(key, value)) for key, value in (values or {}).items() if value is not None]
    merged: dict[str, Any] = {}
    for layer in layers:
        _check_keys(CompressConfig, layer.values, (), layer.source)
        _merge(merged, _spelt_out(layer))
    options = merged["options"] = merged.get("options") or {}
    if isinstance(options.get("samples"), int) and "scored" not in options:
        options["scored"] = max(1, options["samples"] // 2)
    config = CompressConfig(
        budget=_build(Budget, "budget", merged.get("budget") or {}, layers),
        search=_build(SearchOptions, "search", merged.get("search") or {}, layers),
        options=_build(CompressOptions, "options", options, layers),
    )
    if config.search.before_training and not config.options.recovery_steps:
        key, remedy = "search.before_training", "give options.recovery_steps, or leave it out"
        raise MaqeeError(f"{_source_of(key, layers)}{key}: nothing is trained afterwards: {remedy}.")
    return config


def config_keys() -> list[str]:
    """Every dotted key of a configuration, sections included."""
    return [SOLVER, *(".".join(key) for key in _walk(CompressConfig, ()))]


def find_key(key: str) -> str:
    """The dotted key that ends as the user wrote it; the user's error if there is none, or more than one."""
    known = config_keys()
    found = [name for name in known if name == key] or [name for name in known if name.endswith(f".{key}")]
    if len(found) > 1:
        raise MaqeeError(f"{key!r} may be {' or '.join(found)}: give the whole key.")
    if not found:
        raise suggest(key, known if "." in key else sorted({name.rpartition(".")[2] for name in known}), "key")
    return found[0]


def _read_file(path: Path) -> dict[str, Any]:
    values = read_yaml(path, "a YAML file with the sections budget, search and options")
    if values.get("format") == REQUEST_FORMAT:
        choices = cast(dict[str, Any], values.get("choices", {}))
        older = values.get("version") != REQUEST_VERSION  # before activation bits were chosen too
        return current_request(choices) if older else with_scores(choices, "search")
    return values


def _walk(kind: Any, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, annotation in field_types(kind).items():
        yield (*place, name)
        inner = inner_type(annotation)
        if inner is not None and inner is not Bits:
            yield from _walk(inner, (*place, name))


def _nested(key: str, value: Any) -> dict[str, Any]:
    """A value below a dotted key."""
    first, _, rest = key.partition(".")
    return {first: _nested(rest, value) if rest else value}


def _merge(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Put values on top of others, section by section."""
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        else:
            target[name] = dict(value) if isinstance(value, Mapping) else value


def _check_keys(kind: Any, values: Any, place: tuple[str, ...], source: str) -> None:
    """Complain about the first key that does not exist, and about a value where keys belong."""
    if not isinstance(values, Mapping):
        raise MaqeeError(f"{source}{'.'.join(place)}: {values!r:.60} must be keys with values.")
    types = field_types(kind)
    for name, value in values.items():
        if name not in types and ".".join((*place, str(name))) != SOLVER:
            words = unknown_key(str(name), list(types))
            raise MaqeeError(f"{source}{'.'.join(place)}{': ' if place else ''}{words}")
        inner = inner_type(types.get(name))
        if inner is not None and inner is not Bits and name != "overrides" and value is not None:
            _check_keys(inner, value, (*place, name), source)


def _spelt_out(layer: _Layer) -> dict[str, Any]:
    """The same without short forms: a solver as its options, "8/8" as two widths."""
    values = json.loads(json.dumps(layer.values, default=str))
    search = values.get("search") or {}
    if (solver := search.pop("solver", None)) is not None:
        chosen = _named(SearchOptions.for_solver, layer.source, str(solver))
        values["search"] = {"first_move": chosen.first_move, "last_search": chosen.last_search} | search
    quantization = (values.get("options") or {}).get("quantization") or {}
    place = f"{layer.source}options.quantization"
    for name in _BITS:
        if name in quantization:
            quantization[name] = _bits(quantization[name], f"{place}.{name}")
    if (overrides := quantization.get("overrides")) is not None:
        quantization["overrides"] = _overrides(overrides, f"{place}.overrides")
    return cast(dict[str, Any], values)


def _bits(value: Any, where: str) -> Any:
    """Bits as people write them; keys and values, and nothing at all, are for validation to judge."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        bits = parse_bits(str(value), where)
        return {"weights": bits.weights, "activations": bits.activations}
    return value


def _overrides(value: Any, where: str) -> list[list[Any]]:
    """Patterns and bits: a mapping, or pairs, of which the first that matches a layer counts."""
    pairs = value.items() if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs
    ):
        raise MaqeeError(f"{where}: {value!r:.60} must be patterns with bits, such as {{'mlp\\.fc2': 6/4}}.")
    return [[pattern, _bits(bits, where)] for pattern, bits in pairs]


def _named(function: Any, source: str, *arguments: Any) -> Any:
    """Call a function whose complaints need the name of their source."""
    try:
        return function(*arguments)
    except MaqeeError as error:
        raise MaqeeError(f"{source}{error}") from error


def _build(kind: type[Section], section: str, values: Any, layers: Sequence[_Layer]) -> Section:
    """A section from plain values; complaints name where the value comes from and its dotted key."""
    try:
        built: Section = _adapter(cast(Any, kind)).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        path = f"{section}.{key_path(kind, error.errors()[0]['loc'])}".rstrip(".")
        raise MaqeeError(f"{_source_of(path, layers)}{section}.{explain(error, kind)}") from error
    except MaqeeError as error:
        name, colon, rest = str(error).partition(": ")
        paths = [key for key in config_keys() if key.startswith(f"{section}.") and key.endswith(f".{name}")]
        if not colon or len(paths) != 1:
            raise
        raise MaqeeError(f"{_source_of(paths[0], layers)}{paths[0]}: {rest}") from error
    return built


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _source_of(path: str, layers: Sequence[_Layer]) -> str:
    """The strongest layer that says something about a key."""
    for layer in reversed(layers):
        place: Any = layer.values
        for part in path.split("."):
            if not isinstance(place, Mapping) or part not in place:
                break
            place = place[part]
        else:
            return layer.source
    return ""
