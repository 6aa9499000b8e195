"""Configurations: every key of every section, which source is stronger, and what is said about a wrong one."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from maqee.apq import Budget, SearchOptions
from maqee.apq.timed_pairs import TimedPair
from maqee.compression import CompressOptions, RecoverySettings, RiskOptions
from maqee.compression.compress_config import CompressConfig, config_keys, find_key, read_compress_config
from maqee.errors import MaqeeError
from maqee.quant import Bits, QuantSettings
from maqee.training.recipe import AugmentSection

# For every key a value that is not its default, as a person writes it, and what it becomes.
OTHER: dict[str, tuple[Any, Any]] = {
    "budget.average_bits": (5, 5.0),
    "budget.max_bops": (1.0e9, 1e9),
    "budget.max_ms": (2.5, 2.5),
    "budget.min_metric": (0.5, 0.5),
    "budget.max_drop": (0.01, 0.01),
    "budget.like": ("W4A4", "W4A4"),
    "budget.target_on": ("calibration", "calibration"),
    "budget.drop_from": ("quantized", "quantized"),
    "search.alpha": (0.5, 0.5),
    "search.lambda_outer": (2, 2.0),
    "search.lambda_inner": (0.25, 0.25),
    "search.tau": ("estimated", "estimated"),
    "search.use_pgr": (False, False),
    "search.use_bsr": (False, False),
    "search.use_qid": (False, False),
    "search.use_sqnr": (False, False),
    "search.pgr_samples": ("all", "all"),
    "search.pgr_reference": ("quantized", "quantized"),
    "search.bsr_scale": ("fixed", "fixed"),
    "search.normalise": ("none", "none"),
    "search.cost_scale": ("none", "none"),
    "search.outer_sum": ("blocks", "blocks"),
    "search.headless": ("zero", "zero"),
    "search.bsr_confidence": ("quantized", "quantized"),
    "search.bsr_samples": ("reaching", "reaching"),
    "search.bits": ("weights", "weights"),
    "search.grain": ("block", "block"),
    "search.search_bits": ("blocks", "blocks"),
    "search.signal": ("divergence", "divergence"),
    "search.prices": ("full-depth", "full-depth"),
    "search.before_training": (True, True),
    "search.error_passes": (5.0, 5.0),
    "search.bit_min": (2, 2),
    "search.bit_max": (8, 8),
    "search.act_min": (2, 2),
    "search.act_max": (6, 6),
    "search.swap": ("literal", "literal"),
    "search.first_move": ("exact", "exact"),
    "search.spread": ("path", "path"),
    "search.refresh": ("once", "once"),
    "search.accept": ("always", "always"),
    "search.candidates": ("every", "every"),
    "search.objective": ("paper", "paper"),
    "search.scores": ("counted", "counted"),
    "search.last_search": ("exact", "exact"),
    "search.start": (0.9, 0.9),
    "search.reach": (0.2, 0.2),
    "search.frontier": (True, True),
    "search.max_swaps": (3, 3),
    "search.recovery_steps": (7, 7),
    "search.exit_ms": ([1.0, 2.5], (1.0, 2.5)),
    "search.head_ms": ([0.5], (0.5,)),
    "search.timed_on": ("ms on an engine", "ms on an engine"),
    "search.timed_pairs": ([["W5A7", [1.0, 2.5]]], (TimedPair("W5A7", (1.0, 2.5)),)),
    "options.method": ("rtn", "rtn"),
    "options.task": ("segmentation", "segmentation"),
    "options.quantization.weight_bits": (6, 6),
    "options.quantization.act_bits": (8, 8),
    "options.quantization.widths": ([3, 5], (3, 5)),
    "options.quantization.act_widths": ([4, 6], (4, 6)),
    "options.quantization.switched": (["block", "head"], ("block", "head")),
    "options.quantization.patch": ("8/8", Bits(8, 8)),
    "options.quantization.classifier": ("8/float", Bits(8, None)),
    "options.quantization.heads": (6, Bits(6, 4)),
    "options.quantization.overrides": (
        {"fc2": "6/4", "qkv": "float"},
        (("fc2", Bits(6, 4)), ("qkv", Bits(None, None))),
    ),
    "options.quantization.integer_zeros": (False, False),
    "options.quantization.common_steps": (True, True),
    "options.fit_images": (16, 16),
    "options.samples": (40, 40),
    "options.scored": (5, 5),
    "options.recovery_steps": (9, 9),
    "options.recovery.batch_size": (8, 8),
    "options.recovery.lr": (1.0e-5, 1e-5),
    "options.recovery.warmup": (0.5, 0.5),
    "options.recovery.weight_decay": (0.1, 0.1),
    "options.recovery.drop_path": (0.1, 0.1),
    "options.recovery.weights": ("depth", "depth"),
    "options.recovery.alternate": (True, True),
    "options.recovery.detached": (True, True),
    "options.recovery.teacher": ("both", "both"),
    "options.recovery.task_loss": (0.5, 0.5),
    "options.recovery.lr_by_size": (False, False),
    "options.recovery.step_lr": (2.0, 2.0),
    "options.recovery.learn_steps": (False, False),
    "options.recovery.ema": (0.9, 0.9),
    "options.recovery.precision": ("bf16", "bf16"),
    "options.recovery.compile": (True, True),
    "options.recovery.augment.padding": (2, 2),
    "options.recovery.augment.flip": (True, True),
    "options.recovery.augment.trivial": (True, True),
    "options.recovery.augment.min_scale": (0.5, 0.5),
    "options.recovery.augment.jitter": (0.1, 0.1),
    "options.recovery.augment.erase": (0.1, 0.1),
    "options.recovery.augment.mixup": (0.2, 0.2),
    "options.recovery.augment.cutmix": (0.3, 0.3),
    "options.recovery.augment.mix_share": (0.5, 0.5),
    "options.risk.method": ("ucb", "ucb"),
    "options.risk.epsilon": (0.02, 0.02),
    "options.risk.delta": (0.2, 0.2),
    "options.risk.loss": ("brier", "brier"),
    "options.seed": (3, 3),
}
RISK = {"options.risk.method": "crc", "options.risk.epsilon": 0.1}  # a promise needs both


def leaves() -> set[str]:
    """Every field of the dataclasses that a configuration is made of."""
    sections = {
        "budget": Budget,
        "search": SearchOptions,
        "options": CompressOptions,
        "options.quantization": QuantSettings,
        "options.recovery": RecoverySettings,
        "options.risk": RiskOptions,
    }
    found = {f"{place}.{entry.name}" for place, kind in sections.items() for entry in fields(kind)}
    found |= {f"options.recovery.augment.{name}" for name in AugmentSection.model_fields}
    return found - set(sections) - {"options.recovery.augment"}


def value_of(config: CompressConfig, key: str) -> Any:
    place: Any = config
    for part in key.split("."):
        place = getattr(place, part)
    return place


def nested(key: str, value: Any) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def needed(key: str) -> dict[str, Any]:
    if key == "search.recovery_steps":
        return {"search.bits": "weights"}
    if key == "search.before_training":
        return {"options.recovery_steps": 5}
    if key in ("search.head_ms", "search.timed_pairs"):
        return {"search.exit_ms": [1.0, 2.5]}
    return {name: value for name, value in RISK.items() if key.startswith("options.risk.") and name != key}


def write(folder: Path, values: Any) -> Path:
    path = folder / "config.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
    return path


def test_every_key_is_tried_here() -> None:
    assert set(OTHER) == leaves()
    assert leaves() <= set(config_keys())


@pytest.mark.parametrize("key", OTHER)
def test_every_key_is_read_from_a_file(key: str, tmp_path: Path) -> None:
    written, expected = OTHER[key]
    config = read_compress_config(write(tmp_path, nested(key, written)), values=needed(key))
    assert value_of(config, key) == expected
    plain = CompressConfig()
    if "augment" not in key and "risk" not in key:
        assert value_of(plain, key) != expected


@pytest.mark.parametrize("key", OTHER)
def test_every_key_can_be_set(key: str, tmp_path: Path) -> None:
    """With its whole name, with the shortest end that is clear, and over what a file says."""
    written, expected = OTHER[key]
    text = yaml.safe_dump(written, default_flow_style=True).strip().removesuffix("...").strip()
    parts = key.split(".")
    ends = [".".join(parts[start:]) for start in range(len(parts) - 1, -1, -1)]
    short = next(end for end in ends if sum(f".{known}".endswith(f".{end}") for known in config_keys()) == 1)
    for name in (key, short):
        assert value_of(read_compress_config(None, [f"{name}={text}"], needed(key)), key) == expected


def test_flags_are_stronger_than_settings_and_settings_than_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "search: {alpha: 0.1, tau: 0.1, start: 0.1}\noptions: {recovery: {lr: 0.1, warmup: 0.1}}")
    config = read_compress_config(
        path, ["alpha=0.2", "tau=0.2", "recovery.lr=0.2"], {"search.alpha": 0.3, "search.tau": None}
    )
    assert (config.search.alpha, config.search.tau, config.search.start) == (0.3, 0.2, 0.1)
    assert (config.options.recovery.lr, config.options.recovery.warmup) == (0.2, 0.1)


def test_nothing_said_is_the_default() -> None:
    assert read_compress_config() == CompressConfig()
    assert CompressConfig() == CompressConfig(budget=Budget(), search=SearchOptions(), options=CompressOptions())


def test_the_solver_is_short_for_two_options(tmp_path: Path) -> None:
    path = write(tmp_path, {"search": {"solver": "exact"}})
    assert read_compress_config(path).search == SearchOptions.for_solver("exact")
    mixed = read_compress_config(path, ["last_search=coordinate"]).search
    assert (mixed.first_move, mixed.last_search) == ("exact", "coordinate")
    again = read_compress_config(path, values={"search.solver": "coordinate"}).search
    assert again == SearchOptions.for_solver("coordinate")


@pytest.mark.parametrize(("samples", "scored"), [(40, 20), (1, 1), (7, 3)])
def test_half_of_the_samples_are_scored(samples: int, scored: int) -> None:
    assert read_compress_config(values={"options.samples": samples}).options.scored == scored
    told = read_compress_config(None, ["scored=2"], {"options.samples": samples}).options
    assert (told.samples, told.scored) == (samples, 2)


def test_a_request_is_repeated(tmp_path: Path) -> None:
    """What a run has stored about itself gives the same configuration again."""
    from maqee.compression.request import FORMAT, VERSION, plain_options
    from maqee.io import write_json

    options = CompressOptions(
        method="rtn",
        quantization=QuantSettings(patch=Bits(8, 8), overrides=(("fc2", Bits(6, None)),)),
        samples=40,
        scored=11,
        recovery=RecoverySettings(batch_size=16, augment=AugmentSection(flip=True, jitter=0.1)),
        risk=RiskOptions(method="ltt", epsilon=0.1),
    )
    budget, search = Budget(max_drop=0.01), SearchOptions(alpha=0.25)
    choices = {"budget": asdict(budget), "search": asdict(search), "options": plain_options(options)}
    path = tmp_path / "request.json"
    write_json(path, {"format": FORMAT, "version": VERSION, "model": "a", "images": "b", "choices": choices})
    assert read_compress_config(path) == CompressConfig(budget=budget, search=search, options=options)


@pytest.mark.parametrize("section", ["budget", "search", "options"])
def test_an_empty_section_says_nothing(section: str, tmp_path: Path) -> None:
    assert read_compress_config(write(tmp_path, {section: None})) == CompressConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("serch: {}", r"config\.yaml: unknown key 'serch': did you mean search\?$"),
        ("search: {alhpa: 1}", r"config\.yaml: search: unknown key 'alhpa': did you mean alpha"),
        (
            "options: {recovery: {augment: {flop: 1}}}",
            r"options\.recovery\.augment: unknown key 'flop': did you mean flip",
        ),
        ("options: {risk: {method: crr, epsilon: 0.1}}", r"options\.risk\.method: 'crr' must be 'crc', 'ucb' or 'ltt'"),
        ("options: {risk: {method: crc}}", r"options\.risk\.epsilon is missing\.$"),
        ("search: {alpha: 2}", r"config\.yaml: search\.alpha: 2\.0 must be from 0 to 1\.$"),
        ("search: {alpha: much}", r"config\.yaml: search\.alpha: 'much' must be a valid number\.$"),
        ("search: {use_pgr: 1}", r"search\.use_pgr: 1 must be a valid boolean"),
        ("search: 3", r"config\.yaml: search: 3 must be keys with values"),
        ("options: {quantization: {patch: 4/4/4}}", r"config\.yaml: options\.quantization\.patch: '4/4/4' is neither"),
        ("options: {quantization: {patch: 9}}", r"config\.yaml: options\.quantization\.patch: 9 is impossible"),
        ("options: {quantization: {overrides: 3}}", r"overrides: 3 must be patterns with bits"),
        ("options: {quantization: {overrides: [a, b]}}", "must be patterns with bits"),
        ("options: {recovery: {batch_size: 0}}", r"options\.recovery\.batch_size: 0 must be at least 1"),
        ("options: {recovery: {lr: -1}}", r"options\.recovery\.lr: -1\.0 must be more than 0"),
        ("options: {recovery: {precision: fp8}}", r"options\.recovery\.precision: 'fp8' must be 'fp32' or 'bf16'"),
        ("options: {recovery: {lr: .nan}}", r"options\.recovery\.lr: nan must be"),
        ("options: {recovery: {warmup: 2}}", r"options\.recovery\.warmup: 2\.0 must be from 0 to 1"),
        ("options: {recovery: {weight_decay: -1}}", r"options\.recovery\.weight_decay: -1\.0 must be at least 0"),
        ("options: {recovery: {ema: 1}}", r"options\.recovery\.ema: 1\.0 must be from 0 to below 1"),
        ("options: {fit_images: 0}", r"options\.fit_images: 0 must be at least one"),
        ("options: {seed: -1}", r"config\.yaml: options\.seed: -1 must be from 0"),
        ("options: {recovery_steps: -5}", r"config\.yaml: options\.recovery_steps: -5 must be at least 0"),
        ("search: {recovery_steps: -5}", r"config\.yaml: search\.recovery_steps: -5 must be"),
        ("search: {before_training: true}", r"config\.yaml: search\.before_training: nothing is trained afterwards"),
        (
            "{search: {before_training: true, frontier: true}, options: {recovery_steps: 5}}",
            r"config\.yaml: search\.before_training: it is for both widths and one plan",
        ),
        ("search: {solver: best}", r"config\.yaml: solver: 'best' is not one of coordinate, exact"),
        ("budget: {max_drop: .inf}", r"budget\.max_drop: .* must be a finite number"),
        ("budget: {max_drop: 2001-01-01}", r"budget\.max_drop: '2001-01-01' must be a valid number"),
        ("budget: {max_drop: 0.1, max_bops: 1.0}", "max_bops and max_drop: give one of them"),
        ("a: [", "not valid YAML"),
        ("- 1", "must hold keys and values"),
    ],
)
def test_mistakes_in_a_file(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaqeeError, match=message) as error:
        read_compress_config(write(tmp_path, text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha", "no key=value: write, for example, search.alpha=0.5"),
        ("=1", "no key=value"),
        ("alpha=[", "not valid YAML"),
        ("alpah=1", "Unknown key 'alpah': did you mean alpha"),
        ("search.alpah=1", r"Unknown key 'search\.alpah': did you mean search\.alpha"),
        ("method=rtn", r"'method' may be options\.method or options\.risk\.method: give the whole key"),
        ("recovery_steps=3", r"may be search\.recovery_steps or options\.recovery_steps"),
        ("alpha=2", r"^'alpha=2': search\.alpha: 2\.0 must be from 0 to 1"),
        ("search=3", r"^'search=3': search: 3 must be keys with values"),
    ],
)
def test_mistakes_in_settings(text: str, message: str) -> None:
    with pytest.raises(MaqeeError, match=message):
        read_compress_config(None, [text])


def test_no_file() -> None:
    with pytest.raises(MaqeeError, match=r"nowhere\.yaml does not exist: give a YAML file"):
        read_compress_config("nowhere.yaml")


def test_whole_keys_are_found_before_ends() -> None:
    assert find_key("search") == "search"
    assert find_key("recovery.lr") == "options.recovery.lr"
    assert all(find_key(key) == key for key in config_keys())
    assert is_dataclass(CompressConfig)
