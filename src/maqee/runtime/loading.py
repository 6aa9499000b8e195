"""Load what maqee wrote. Needs no search code, no trainer and no data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from maqee.apq.plan import Plan
from maqee.device import pick_device
from maqee.errors import MaqeeError
from maqee.exits import EarlyExitModel, load_network, network_from_json
from maqee.io import read_json
from maqee.models import Preprocessing
from maqee.policy import Policy
from maqee.quant import QuantizedModel
from maqee.quant.artifact import load_quantized
from maqee.runs import CONFIG, PLAN, PREPROCESSING, is_compressed, model_folder, read_recipe, stage_folder
from maqee.runtime.engines import engines, use_engine
from maqee.runtime.ready import Compression, ReadyModel
from maqee.tasks import segmentation, tasks


def load(
    folder: str | Path,
    policy: Policy | str | Path | None = None,
    device: str = "cpu",
    stage: str | None = None,
    engine: str = "torch",
    half_tokens: bool = False,
) -> ReadyModel:
    """Load a compressed model, a trained run or a model folder: `load(folder).predict(images)`.

    Args:
        folder: written by `maqee compress`, `maqee train`, `maqee exits`, `save_pretrained` of transformers, ...
        policy: other thresholds: a policy, or the path of a plan. Left out, a compressed model follows its plan, and a
            trained one, which has none, runs at full depth.
        device: where it runs; `load(folder).to(device)` moves it later.
        stage: of a trained run, the stage to load; the last one when left out.
        engine: what runs it: "torch" (quantized layers simulated), "reference" (integer codes, slow), "onnxruntime" or
            "openvino" (integer codes on the CPU), "triton" (integer codes on a GPU); see docs/runtime.md.
        half_tokens: with "triton", let tokens travel between blocks in float16 instead of float32: less to read and
            write, and a rounding after every branch that the simulation does not have; see docs/kernels.md.
    """
    folder, _ = Path(folder), engines[engine]
    if not folder.is_dir():
        raise MaqeeError(f"{folder} is no folder: give one written by maqee train or maqee compress.")
    if is_compressed(folder):
        if stage is not None:
            raise MaqeeError(f"{folder} holds a compressed model, which has no stages: leave the stage out.")
        model = _load_compressed(folder)
    else:
        found = stage_folder(folder, stage) if stage is not None else model_folder(folder)
        model = _load_trained(found, read_recipe(folder).get("task"))
    if isinstance(policy, Policy):
        model = model.with_policy(policy)
    elif policy is not None:
        model = _follow(model, read_plan(policy))
    return use_engine(model, engine, pick_device(device), half_tokens)


def read_plan(path: str | Path) -> Plan:
    """A plan from its file, or from the folder that it lies in."""
    return Plan.load(Path(path) / PLAN if Path(path).is_dir() else Path(path))


def read_policy(path: str | Path) -> Policy:
    """The thresholds of a plan: its file, or the folder that it lies in."""
    return read_plan(path).policy


def _follow(model: ReadyModel, plan: Plan) -> ReadyModel:
    """Stop by a plan's thresholds, and by the confidence that they were chosen for, which the plan's task names."""
    if tasks[plan.task].targets != model.task.targets:
        raise MaqeeError(f"The plan is for {plan.task}, the model for {model.task_name}: give a plan of this model.")
    model.model.use_confidence(tasks[plan.task].confidence)
    return replace(model, task_name=plan.task).with_policy(plan.policy)


def _load_compressed(folder: Path) -> ReadyModel:
    plan = Plan.load(folder / PLAN)
    quantized = load_quantized_network(folder)
    model = quantized.model
    if not isinstance(model, EarlyExitModel) or model.positions != plan.exit_blocks:
        raise MaqeeError(f"{folder}: {PLAN} and {CONFIG} do not belong together: copy the whole folder again.")
    if quantized.bit_settings != plan.bits:
        raise MaqeeError(f"{folder}: {PLAN} and the model have different bits: copy the whole folder again.")
    model.use_confidence(tasks[plan.task].confidence)
    stored = Preprocessing.from_json(read_json(folder / PREPROCESSING), str(folder / PREPROCESSING))
    model.backbone.preprocessing = stored
    return ReadyModel(model.eval(), plan.policy, plan.task, Compression(plan, quantized))


def load_quantized_network(folder: str | Path) -> QuantizedModel:
    """A quantized model, with exits or without, from the folder that `save_quantized` wrote."""
    return load_quantized(Path(folder), network_from_json)


def _load_trained(folder: Path, task: str | None) -> ReadyModel:
    network = load_network(folder)
    if not isinstance(network, EarlyExitModel):
        network = EarlyExitModel(network, (), ())
    task = task or _task_by_shape(network)
    network.use_confidence(tasks[task].confidence)
    return ReadyModel(network.eval(), Policy.never(network.num_exits), task)


def _task_by_shape(network: EarlyExitModel) -> str:
    """What a model predicts that nobody has told the task of, such as one of transformers: its outputs decide."""
    if getattr(network.backbone.config, "detection_tokens", 0):
        return "detection"
    return segmentation.DEFAULT if (network.final_kind or "").startswith("segformer") else "classification"
