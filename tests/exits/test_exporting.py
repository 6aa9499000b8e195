"""What is exported is written in other words; what is compiled is not."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from maqee.exits.batch_norm import TokenBatchNorm
from maqee.models.exporting import exporting, is_exporting
from maqee.models.layers import TokenDepthwise


def traced(module: torch.nn.Module, *given: Any) -> list[str]:
    """Names of the operations that torch.compile sees."""
    seen: list[str] = []

    def keep(graph: fx.GraphModule, _inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch._dynamo.reset()
    torch.compile(module, backend=keep)(*given)
    return seen


def test_only_inside() -> None:
    assert not is_exporting()
    with exporting():
        with exporting():
            assert is_exporting()
        assert is_exporting()
    assert not is_exporting()


def test_batch_norms_learn_their_statistics_when_compiled() -> None:
    norm, x = TokenBatchNorm(3), 5 + torch.randn(4, 6, 3)
    traced(norm.train(), x)
    assert norm.num_batches_tracked == 1
    assert norm.running_mean is not None
    torch.testing.assert_close(norm.running_mean, 0.1 * x.mean(dim=(0, 1)))


def test_compiled_convolutions_over_tokens_are_shifted_products() -> None:
    layer, tokens = TokenDepthwise(4), torch.randn(2, 6, 4)
    assert not any("conv" in name for name in traced(layer, tokens, (2, 3)))
    with exporting():
        assert any("conv" in name for name in traced(layer, tokens, (2, 3)))


def test_an_exported_batch_norm_is_a_factor_and_a_shift() -> None:
    norm, x = TokenBatchNorm(3).eval(), torch.randn(4, 6, 3)
    norm.load_state_dict({name: torch.rand_like(value.float()) + 0.5 for name, value in norm.state_dict().items()})
    expected = norm(x)
    with exporting():
        torch.testing.assert_close(norm(x), expected)
