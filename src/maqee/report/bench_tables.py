"""What the benchmarks measured, as plain text."""

from __future__ import annotations

from collections import Counter
from typing import Any

GIB = 2**30


def gradients_line(result: dict[str, Any]) -> str:
    """Whether compiled gradients are those of the eager model."""
    return (
        f"{result['model']} with {result['exits']} exits, {result['precision']}, {result['device']}: gradient norm "
        f"{result['eager_norm']:.4f} eager, {result['compiled_norm']:.4f} compiled, relative difference "
        f"{result['relative_difference']:.2e}: {'they agree' if result['agree'] else 'WRONG'}"
    )


def exits_table(result: dict[str, Any]) -> str:
    """Early exit against full depth."""
    lines = [
        f"{result['model']}, {result['exits']} exits, batch {result['batch_size']}, {result['precision']}, "
        f"{result['device']}, executed",
        f"{'mean exit':>10}{'full img/s':>12}{'exit img/s':>12}{'speed-up':>10}{'ideal':>8}{'reached':>9}",
    ]
    lines += [
        f"{row['mean_exit']:>10.2f}{row['full_depth_images_per_second']:>12.0f}{row['images_per_second']:>12.0f}"
        f"{row['speedup']:>10.2f}{row['ideal_speedup']:>8.2f}{row['share_of_ideal']:>9.1%}"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def fitting_table(result: dict[str, Any]) -> str:
    """What fitting each method costs."""
    base = result["float_pass"]
    lines = [
        f"{result['model']}, {result['bits']}, {result['images']} images, {result['threads']} processor threads",
        f"{'method':<12}{'fit s':>9}{'pass s':>9}{'passes':>9}{'simulated':>11}{'peak GiB':>10}{'ratio':>8}"
        f"{'extra / model':>15}",
        f"{'float':<12}{'':>9}{base['pass_seconds']:>9.2f}{1:>9.2f}{1:>11.2f}{base['peak_bytes'] / GIB:>10.2f}"
        f"{1:>8.2f}",
    ]
    lines += [
        f"{row['method']:<12}{row['fit_seconds']:>9.2f}{row['pass_seconds']:>9.2f}{row['passes']:>9.2f}"
        f"{row['simulated']:>11.2f}{row['peak_bytes'] / GIB:>10.2f}{row['peak_ratio']:>8.2f}"
        f"{row['extra_per_model_bytes']:>15.2f}"
        for row in result["rows"]
    ]
    weights, activations = result["all_pairs"]
    lines += [
        f"all {len(weights) * len(activations)} pairs of W{weights[0]}..{weights[-1]} and "
        f"A{activations[0]}..{activations[-1]}",
        f"{'method':<12}{'fit s':>9}{'one pair':>10}{'peak GiB':>10}{'kept / model':>14}{'set_bits ms':>13}",
    ]
    lines += [
        f"{row['method']:<12}{row['all_pairs_seconds']:>9.2f}{row['all_pairs_multiple']:>9.2f}x"
        f"{row['all_pairs_peak_bytes'] / GIB:>10.2f}{row['all_pairs_per_model_bytes']:>14.2f}"
        f"{row['set_bits_ms']:>13.3f}"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def recovery_line(result: dict[str, Any]) -> str:
    """A quantized training step against one in float."""
    seconds = result["seconds"]
    return (
        f"{result['model']}, batch {result['batch']}: a step takes {1000 * seconds['float']:.1f} ms in float and "
        f"{1000 * seconds['quantized']:.1f} ms quantized, {result['multiple']:.2f} times as long; "
        f"gradient norm {result['gradient_norm']}"
    )


def search_step_table(result: dict[str, Any]) -> str:
    """The search and its steps against one calibration pass, and against running the model anew."""
    lines = [
        f"{result['model']} by {result['method']}, {result['samples']} images, {result['scored']} for single blocks, "
        f"{result['device']}, {result['threads']} threads",
        f"{'':<28}{'passes':>8}{'seconds':>10}{'of a pass':>11}",
        f"{'calibration pass':<28}{1:>8}{result['pass_seconds']:>10.2f}{1:>11.2f}",
    ]
    rows = (
        ("one iteration", "iteration"),
        ("the whole search", "whole"),
        ("one step, weights alone", "step"),
        ("running the model anew", "plain"),
    )
    for name, key in rows:
        row = result[key]
        lines.append(f"{name:<28}{row['passes']:>8.3g}{row['seconds']:>10.2f}{row['of_a_pass']:>11.2f}")
    arrays = result["arrays"]
    lines.append(
        f"On arrays of {arrays['samples']} samples and {arrays['exits']} exits: a sweep of thresholds "
        f"{1000 * arrays['grid_sweep_seconds']:.2f} ms, the exact optimum {arrays['exact_seconds']:.2f} s"
    )
    return "\n".join(lines)


def integers_line(result: dict[str, Any]) -> str:
    """Whether simulated and executed models agree."""
    return (
        f"{result['model']}, {result['method']} {result['bits']}, {result['images']} images: simulated and executed "
        f"agree on {result['agreement']:.2%}; worst layer {result['worst_layer']:.1e}"
    )


def neighbour_line(result: dict[str, Any]) -> str:
    """The demo alone and beside busy programs."""
    alone, beside = result["alone"], result["beside"]
    return (
        f"The demo takes {alone['seconds']:.1f} s alone (load {alone['load_before'][0]:.1f} before it) and "
        f"{beside['seconds']:.1f} s beside {result['neighbours']} busy on {result['cores']} cores: "
        f"{result['ratio']:.2f} times as long; at most {result['aim']:g} is the aim"
    )


def stream_table(result: dict[str, Any]) -> str:
    """Streams against batches, full depth and the reference, with what each policy costs."""
    bits = "" if result["bits"] is None else f", {result['method']} {result['bits']}"
    wide = max(len(way["name"]) for row in result["rows"] for way in row["ways"]) + 2
    lines = [
        f"{result['model']}, {result['weights']} weights{bits}, {result['images']} images, batch "
        f"{result['batch_size']}, {result['precision']}, {result['device']}, engine {result['engine']}, executed; "
        f"ideal = full depth's time x the policy's share of its MACs; times: as fast as {result['reference']}",
        f"{'mean exit':>10}{'MACs':>8}{'BOPs':>11}{'of 32 bits':>12}  {'way':<{wide}}{'img/s':>9}{'times':>7}"
        f"{'of ideal':>10}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}",
    ]
    for row in result["rows"]:
        lines += [
            f"{row['mean_exit']:>10.2f}{row['macs_share']:>8.1%}{row['bops']:>11.3e}{row['bops_share']:>12.2%}  "
            f"{way['name']:<{wide}}{way['images_per_second']:>9.1f}{way['times_reference']:>7.2f}"
            f"{way['share_of_ideal']:>10.1%}{way['p50_ms']:>9.1f}{way['p95_ms']:>9.1f}{way['p99_ms']:>9.1f}"
            for way in row["ways"]
        ]
    if result["quantization"] == "simulated":
        lines.append("On torch low bits are simulated in floating point: their speed is not that of integers.")
    reasons = Counter(line.partition(": simulated: ")[2] for line in result["simulated"])
    lines += [f"without kernels, simulated: {count} parts: {reason}" for reason, count in reasons.items()]
    return "\n".join(lines)
