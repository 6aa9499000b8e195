"""What several tests share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner, Result

from maqee.exits import NEVER, EarlyExitModel, add_exits, heads
from maqee.exits.lgvit import LgvitHead
from maqee.models import TokenShape, load_backbone
from maqee.policy import Policy
from maqee.quant import QuantizedModel
from maqee.tasks import tasks
from maqee.widths import BitSettings, BlockWidths

FIXTURES = Path(__file__).parent / "fixtures"


def by_block(weights: Sequence[int], activations: int = 4) -> BitSettings:
    """Weight bits of every block, the same in all its layers, and one activation width for all."""
    return BitSettings(blocks=tuple(BlockWidths.uniform(bits, activations) for bits in weights))


def set_weights(model: QuantizedModel, weights: Sequence[int]) -> None:
    """Other weight bits in every block, and the activations as they are."""
    model.set_widths(model.bit_settings.with_weights(weights))


def randomize(module: nn.Module, std: float = 0.1) -> nn.Module:
    """Give every parameter and running statistic an unremarkable random value, so that no term vanishes."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator))
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(std * torch.randn(buffer.shape, generator=generator))
            if name.endswith("running_var"):
                buffer.copy_(1 + torch.rand(buffer.shape, generator=generator))
    return module.eval()


def max_difference(one: Tensor, other: Tensor) -> float:
    """Largest absolute difference; shapes must agree."""
    assert one.shape == other.shape
    return float((one.detach() - other.detach()).abs().max())


def chosen_exits(policy: Policy, confidences: Tensor) -> Tensor:
    """The exit each sample takes: (exits, samples) confidences to (samples,)."""
    return torch.from_numpy(policy.choose(confidences.T.numpy()))


def save_digits_model(folder: Path) -> Path:
    """An untrained model for the digits with two exits, in a folder."""
    torch.manual_seed(0)
    add_exits(load_backbone("vit-digits"), "mlp", positions=(2, 4)).save(folder)
    return folder


def load_miniature(task: str = "classification") -> EarlyExitModel:
    """A model of four blocks with two exits that was trained once and for all, by tools/make_test_models.py."""
    folder = {"classification": "digits"}.get(task, task)
    return EarlyExitModel.load(FIXTURES / folder, tasks[task].confidence).eval()


def parting_thresholds(confidence: Tensor) -> tuple[float, ...]:
    """Thresholds that part the samples at every exit, as far from any confidence as can be.

    Some samples leave and some go on, whatever the model; and a last place that a processor rounds differently, or
    differently in another batch, moves nobody to another exit.

    Args:
        confidence: (samples, exits); more columns, as of full depth, are not wanted.
    """
    found: list[float] = []
    for index in range(confidence.shape[1]):
        if len(confidence) < 2:
            found.append(NEVER)
            continue
        values = confidence[:, index].double().sort().values
        quarter = len(values) // 4
        middle = values[quarter : len(values) - quarter]  # (about half of the samples that are left,)
        widest = int(middle.diff().argmax())
        found.append(float(middle[widest : widest + 2].mean()))
        confidence = confidence[confidence[:, index] < found[-1]]
    return tuple(found)


def wavering(confidence: Tensor, thresholds: Sequence[float], margin: float = 0.02) -> Tensor:
    """Which of (samples, exits) are so near to a threshold that rounding may send them to another exit: (samples,)."""
    return (confidence - torch.tensor(thresholds)).abs().min(dim=1).values < margin


def undecided(logits: Tensor, margin: float = 0.05) -> float:
    """The share of the samples whose two likeliest classes are so near that rounding may choose between them."""
    best = logits.softmax(dim=-1).topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1] < margin).float().mean())


def run_python(code: str) -> None:
    """Run code in a fresh interpreter, where nothing has been imported yet; it must not fail."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def invoke(*arguments: str) -> Result:
    """Run the command line in this process, with the exit codes a shell would see."""
    from maqee.cli import app
    from maqee.errors import MaqeeError

    result = CliRunner().invoke(app, list(arguments))
    if isinstance(result.exception, MaqeeError):
        result.exit_code = 2
    return result


def count_head_macs(kind: str, shape: TokenShape, classes: int) -> tuple[int, int]:
    """What an exit head says it multiplies, and what torch counts when it runs: LGViT's for every patch."""
    with torch.device("meta"):
        head = heads[kind](shape, classes).eval()
        tokens = torch.randn(1, shape.tokens, shape.dim)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        head.with_features(tokens) if isinstance(head, LgvitHead) else head(tokens)
    return head.macs(), counter.get_total_flops() // 2


def check_every_tensor_matters(
    module: nn.Module, everything: Callable[[nn.Module], Tensor], silent: Callable[[str], bool], least: float
) -> None:
    """A parity test proves something only if no tensor could be lost unseen: change each, and look for the effect."""
    before = everything(module)
    for name, parameter in module.named_parameters():
        if silent(name):
            continue
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(torch.randn(kept.shape))
            after = everything(module)
            parameter.copy_(kept)
        assert max_difference(before, after) > least, name
