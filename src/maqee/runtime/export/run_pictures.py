"""Run an exported model: python run.py picture.jpg ... Needs numpy, pillow and onnxruntime (or openvino)."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps


class Model:
    """The segments of a model, each a file, run one after the other until an image is sure enough."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.about = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        self.segments = [self.start(segment) for segment in self.about["segments"]]

    def start(self, segment):
        for name, sha256 in segment["sha256"].items():
            if hashlib.sha256((self.folder / name).read_bytes()).hexdigest() != sha256:
                sys.exit(f"{name} is not the file that was exported: copy the whole folder again.")
        path = str(self.folder / segment["file"])
        if path.endswith(".onnx"):
            import onnxruntime as ort

            options, kind = ort.SessionOptions(), ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
            if segment is self.about["segments"][0]:  # once: one memory for all segments
                ort.create_and_register_allocator(ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT), None)
            options.add_session_config_entry("session.use_env_allocators", "1")
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            return lambda arrays: session.run(None, dict(zip(segment["inputs"], arrays)))
        import openvino

        exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        compiled = openvino.compile_model(path, "CPU", exact)
        return lambda arrays: [np.array(found) for found in compiled(list(arrays)).values()]

    def read(self, path):
        """A picture as the model wants it: (channels, height, width)."""
        how, image = self.about["preprocessing"], Image.open(path)
        image = ImageOps.exif_transpose(image) if how["exif"] else image
        if image.mode.startswith("I"):
            image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
        if how["transparent"] == "white" and image.has_transparency_data:
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        image = image.convert("RGB").convert("L" if len(how["mean"]) == 1 else "RGB")
        (rows, columns), resize, rounding = how["image_size"], how["resize"], how["rounding"]
        height, width = image.height, image.width
        if resize is None or isinstance(resize, list):
            height, width = resize or (rows, columns)
        elif not isinstance(resize, str):
            short = min(height, width)
            scale, rough = resize / short, (int(resize * height / short), int(resize * width / short))
            exact = max(round(height * scale), rows), max(round(width * scale), columns)
            height, width = exact if rounding == "maqee" else rough
        if (width, height) != image.size:
            image = image.resize((width, height), Image.Resampling[how["resample"].upper()])
        spare = height - rows, width - columns  # to cut off; below 0 where something is missing
        top, left = (n // 2 if rounding == "transformers" else round(n / 2) if n > 0 else int(n / 2) for n in spare)
        image = image.crop((left, top, left + columns, top + rows))  # black where it is too small
        pixels = np.asarray(image, np.float32).reshape(rows, columns, -1).transpose(2, 0, 1) / np.float32(255)
        pixels = pixels if 255 * how["rescale"] == 1 else pixels * np.float32(255 * how["rescale"])
        return (pixels - np.float32(how["mean"])[:, None, None]) / np.float32(how["std"])[:, None, None]

    def run(self, images):
        """Normalised images (n, channels, height, width) to output, block and confidence of each."""
        answers, alive = [None] * len(images), np.arange(len(images))
        given = {self.about["segments"][0]["inputs"][0]: np.asarray(images, np.float32)}
        for run, segment, threshold in zip(self.segments, self.about["segments"], [*self.about["thresholds"], 0.0]):
            found = dict(zip(segment["outputs"], run([given[name] for name in segment["inputs"]])))
            for place, output, sure in zip(alive, found["output"], found["confidence"]):
                answers[place] = (output, segment["block"], float(sure))
            staying = found["confidence"] < threshold if segment is not self.about["segments"][-1] else alive < 0
            if not staying.any():
                break
            new = {name[: -len("_out")]: value for name, value in found.items() if name.endswith("_out")}
            given, alive = {name: value[staying] for name, value in {**given, **new}.items()}, alive[staying]
        return answers

    def tell(self, output):
        """What a picture shows, in words."""
        names = dict(enumerate(self.about["classes"]))
        if self.about["targets"] == "labels":
            return str(names.get(int(output.argmax()), output.argmax()))
        if self.about["targets"] == "masks":
            found, counts = np.unique(output.argmax(axis=0), return_counts=True)
            return ", ".join(f"{names.get(int(n), int(n))} {c / counts.sum():.0%}" for n, c in zip(found, counts))
        best = output[:, :-4].argmax(axis=1)  # the last class is "no object"
        rows = [(names.get(int(n), int(n)), row[-4:]) for n, row in zip(best, output) if n < output.shape[1] - 5]
        return ", ".join(f"{name} at {np.round(box, 2).tolist()}" for name, box in rows) or "nothing"


if __name__ == "__main__":
    model = Model(Path(__file__).parent)
    for path in sys.argv[1:] or sys.exit(__doc__):
        ((output, block, sure),) = model.run(model.read(path)[None])
        print(f"{path}: {model.tell(output)} (confidence {sure:.3f}, after block {block})")
