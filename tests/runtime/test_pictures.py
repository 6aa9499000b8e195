"""Whatever a user hands over becomes what evaluation would have fed the model, or one clear sentence."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from maqee.data import ArrayImages, FileEntry, FileImages, ImageSet, eval_batches
from maqee.errors import MaqeeError
from maqee.models import Preprocessing
from maqee.runtime.input_batches import read_batches
from maqee.runtime.pictures import NormalizedPicture, Picture, list_pictures
from tests.data.makers import assert_one_sentence
from tests.runtime.makers import some_pixels, write_pictures

CPU = torch.device("cpu")
COLOUR = Preprocessing(image_size=(16, 24), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
CROPPED = Preprocessing(image_size=(16, 16), resize=18)
GREY = Preprocessing(image_size=(16, 16), mean=(0.5,), std=(0.5,))


def read(images: Any, preprocessing: Preprocessing = COLOUR, batch_size: int = 4) -> Tensor:
    """Everything that a model would get."""
    return torch.cat([batch.images for batch in read_batches(images, preprocessing, batch_size, CPU)])


def names(images: Any) -> list[str]:
    return [picture.name for picture in list_pictures(images)]


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_every_kind_of_input_gives_the_same_numbers(tmp_path: Path) -> None:
    files = write_pictures(tmp_path / "pics", count=3)
    arrays = [some_pixels(seed=number) for number in range(3)]  # (h, w, 3)
    tensors = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    expected = read(files)
    assert expected.shape == (3, 3, 16, 24)
    with Image.open(files[0]) as first, Image.open(files[1]) as second:
        kinds: dict[str, Any] = {
            "strings": [str(file) for file in files],
            "folder": tmp_path / "pics",
            "folder as text": str(tmp_path / "pics"),
            "pattern": str(tmp_path / "pics" / "*.png"),
            "recursive pattern": str(tmp_path / "**" / "*.png"),
            "opened pictures": [first, second, files[2]],
            "pictures": [Image.fromarray(array) for array in arrays],
            "arrays": arrays,
            "batch of arrays": np.stack(arrays),
            "tensors": tensors,
            "batch of tensors": torch.stack(tensors),
            "tuple of many kinds": (files[0], arrays[1], tensors[2]),
            "named pictures": list_pictures(files),
            "iterator": iter(files),
            "generator": (array for array in arrays),
        }
        for kind, images in kinds.items():
            assert torch.equal(read(images), expected), kind
    for single in (files[0], arrays[0], tensors[0], Image.fromarray(arrays[0])):
        assert torch.equal(read(single), expected[:1])


def odd_pictures(folder: Path) -> list[Path]:
    """Pictures of all modes that files come in."""
    pixels = some_pixels(45, 31)
    made = {
        "colour.jpg": Image.fromarray(pixels),
        "grey.png": Image.fromarray(pixels[:, :, 0]),
        "deep.png": Image.fromarray(pixels[:, :, 0].astype(np.uint16) << 8),
        "transparent.png": Image.fromarray(np.dstack([pixels, pixels[:, :, 1]])),
        "palette.png": Image.fromarray(pixels).quantize(20),
        "bits.png": Image.fromarray(pixels).convert("1"),
        "cmyk.jpg": Image.fromarray(pixels).convert("CMYK"),
        "fits.png": Image.fromarray(some_pixels(16, 24)),
        "wide.webp": Image.fromarray(some_pixels(9, 120)),
    }
    folder.mkdir()
    for name, image in made.items():
        image.save(folder / name)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    made["colour.jpg"].save(folder / "turned.jpg", exif=exif)
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    "preprocessing",
    [
        COLOUR,
        CROPPED,
        Preprocessing(image_size=(20, 12), resize=25),
        Preprocessing(image_size=(16, 16), resize=(20, 24), resample="nearest", exif=False),
        Preprocessing(image_size=(16, 16), resize=18, resample="lanczos", rounding="transformers", transparent="white"),
        Preprocessing(image_size=(16, 16), resize=18, resample="bilinear", rounding="timm", rescale=1.0),
        Preprocessing(image_size=(40, 40), resize="crop"),  # some pictures are too small for it
    ],
)
def test_files_are_prepared_as_evaluation_does_to_the_bit(preprocessing: Preprocessing, tmp_path: Path) -> None:
    files = odd_pictures(tmp_path / "pics")
    entries = FileImages([FileEntry(str(file), file) for file in files])
    data = ImageSet("odd", entries, torch.zeros(len(files), dtype=torch.long), ("all",))
    expected = torch.cat([images for images, _ in eval_batches(data, preprocessing, 4)])
    assert torch.equal(read(files, preprocessing), expected)
    with_pillow = [Image.open(file) for file in files]
    assert torch.equal(read(with_pillow, preprocessing), expected)


def test_pictures_are_turned_before_their_size_is_taken(tmp_path: Path) -> None:
    turned = next(file for file in odd_pictures(tmp_path / "pics") if file.name == "turned.jpg")
    [batch] = read_batches(turned, COLOUR, 1, CPU)
    assert batch.views[0].picture == (31, 45)
    [batch] = read_batches(turned, replace(COLOUR, exif=False), 1, CPU)
    assert batch.views[0].picture == (45, 31)


def test_pictures_that_a_model_takes_as_they_are(tmp_path: Path) -> None:
    kept = replace(COLOUR, resize="keep")
    assert torch.equal(read(some_pixels(16, 24), kept), read(some_pixels(16, 24)))
    [file] = write_pictures(tmp_path, count=1)
    with pytest.raises(MaqeeError, match=rf"^{re.escape(str(file))}: 30x20 pixels do not fit") as caught:
        read(file, kept)
    assert "\n" not in str(caught.value)


def test_the_view_has_the_size_of_the_picture(tmp_path: Path) -> None:
    [file] = write_pictures(tmp_path, count=1, size=(30, 50))
    [batch] = read_batches([file, some_pixels(7, 9), torch.zeros(2, 3, 16, 24)], COLOUR, 8, CPU)
    assert [view.picture for view in batch.views] == [(30, 50), (7, 9), (16, 24), (16, 24)]
    assert all(view.sees_all for view in batch.views)


def test_models_of_one_channel_take_the_luminance() -> None:
    pixels = some_pixels(16, 16).astype(np.int64)
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    light = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16  # 0.299, 0.587 and 0.114 in 65536ths
    expected = (torch.from_numpy(light).float() / 255 - 0.5) / 0.5
    assert torch.equal(read(pixels.astype(np.uint8), GREY)[0, 0], expected)


def test_grey_pictures_keep_their_values() -> None:
    grey = some_pixels(16, 16)[:, :, 0]
    data = ImageSet("grey", ArrayImages(torch.from_numpy(grey)[None, None]), torch.tensor([0]), ("all",))
    [(expected, _)] = eval_batches(data, GREY, 1)
    tensor = torch.from_numpy(grey)
    for kind in (grey, grey[:, :, None], grey[None, :, :, None], tensor, tensor[None], tensor[None, None]):
        assert torch.equal(read(kind, GREY), expected), kind.shape
    assert torch.equal(read(Image.fromarray(grey), GREY), expected)
    assert read(grey, COLOUR).shape == (1, 3, 16, 24)


def test_floats_are_taken_as_they_are() -> None:
    values = torch.randn(5, 3, 16, 24)
    assert torch.equal(read(values), values)
    assert torch.equal(read(list(values)), values)
    assert torch.equal(read(values.double()), values.double().float())
    pixels = some_pixels()
    mixed = read([pixels, values[:2], pixels, values[2]], batch_size=8)
    assert torch.equal(mixed[[1, 2, 4]], values[:3])
    assert torch.equal(mixed[[0, 3]], read([pixels, pixels]))


# --- names, order, laziness ------------------------------------------------------------------------------------------


def test_a_folder_is_its_images_sorted_with_those_below(tmp_path: Path) -> None:
    source = write_pictures(tmp_path / "source", count=1)[0]
    for name in ("b.png", "a/c.JPG", "a/deep/d.webp", "z.tiff", "notes.txt", "a/list.csv"):
        (tmp_path / "pics" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / "pics" / name)
    wanted = [str(tmp_path / "pics" / name) for name in ("a/c.JPG", "a/deep/d.webp", "b.png", "z.tiff")]
    assert names(tmp_path / "pics") == sorted(wanted)
    assert names(str(tmp_path / "pics" / "*.png")) == [str(tmp_path / "pics" / "b.png")]
    assert names(str(tmp_path / "pics" / "**" / "*.webp")) == [str(tmp_path / "pics" / "a/deep/d.webp")]
    assert names(str(tmp_path / "pics" / "[bz]*")) == [str(tmp_path / "pics" / name) for name in ("b.png", "z.tiff")]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    [file] = write_pictures(tmp_path, count=1)
    other = file.rename(tmp_path / "img[1].png")
    assert names(str(other)) == [str(other)]


def test_pictures_are_called_by_their_file_or_their_place(tmp_path: Path) -> None:
    [file] = write_pictures(tmp_path, count=1)
    with Image.open(file) as opened:
        given = [some_pixels(), opened, torch.zeros(2, 3, 16, 24), Image.fromarray(some_pixels()), file]
        assert names(given) == ["image 0", str(file), "image 2", "image 3", "image 4", str(file)]


def test_no_more_is_read_than_the_next_batch_needs() -> None:
    opened: list[str] = []

    def picture(name: str) -> Picture:
        def read_it() -> Image.Image:
            opened.append(name)
            return Image.fromarray(some_pixels())

        return Picture(name, read_it)

    batches = read_batches([picture(str(number)) for number in range(10)], COLOUR, 4, CPU)
    assert next(batches).names == ("0", "1", "2", "3")
    assert sorted(opened) == ["0", "1", "2", "3"]

    taken: list[int] = []

    def camera() -> Iterator[Any]:
        for number in range(1000):
            taken.append(number)
            yield some_pixels(seed=number)

    frames = read_batches(camera(), COLOUR, 2, CPU)
    assert [batch.names for batch in (next(frames), next(frames))] == [("image 0", "image 1"), ("image 2", "image 3")]
    assert taken == [0, 1, 2, 3]


def test_one_opened_picture_many_times(tmp_path: Path) -> None:
    """Pillow decodes when a picture is first used, here by several threads."""
    [file] = write_pictures(tmp_path, count=1, size=(300, 400))
    expected = read(file)
    with Image.open(file) as opened:
        assert torch.equal(read([opened] * 32, batch_size=32), expected.expand(32, -1, -1, -1))


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "hint"),
    [
        ("nowhere.jpg", "'nowhere.jpg' does not exist: give a file, a folder"),
        (Path("nowhere") / "a.jpg", "does not exist"),
        ("", "'' does not exist"),
        ("pics/*.nothing", "No file matches 'pics/*.nothing'"),
        ([], "There are no images"),
        (iter([3]), "An object of type int is no image"),
        (3.5, "An object of type float is no image"),
        (None, "An object of type NoneType is no image"),
        (b"\x89PNG", "type int is no image"),
        ([[some_pixels()]], "An object of type list is no image"),
        (some_pixels() / 255, "An array of float64 is no picture: give pixels from 0 to 255 as uint8"),
        (some_pixels() > 3, "An array of bool is no picture"),
        (some_pixels()[:, :, :2], r"An array of shape \(20, 30, 2\) is no picture"),
        (some_pixels().transpose(2, 0, 1), r"\(3, 20, 30\) is no picture: give \(height, width\)"),
        (np.zeros((2, 2, 2, 2, 3), dtype=np.uint8), "is no picture"),
        (np.zeros((0, 5, 3), dtype=np.uint8), "is no picture"),
        (np.zeros((0, 5, 5, 3), dtype=np.uint8), "There are no images"),
        (np.array(["a.jpg"]), "is no picture"),
        (torch.zeros(16, 24), "is no batch of normalised images"),
        (torch.zeros(1, 2, 3, 16, 24), "is no batch of normalised images"),
        (torch.zeros(3, 16, 16), r"has shape \(3, 16, 16\), and the model takes \(3, 16, 24\)"),
        (torch.zeros(2, 1, 16, 24), r"has shape \(1, 16, 24\), and the model takes \(3, 16, 24\)"),
        (torch.zeros(2, 3, 16, 24, dtype=torch.int64), "torch.int64 .* is no picture: give pixels as uint8"),
        (torch.zeros(20, 30, 3, dtype=torch.uint8), r"shape \(20, 30, 3\) is no picture"),
        (torch.zeros(2, 2, 20, 30, dtype=torch.uint8), "is no picture"),
        (torch.zeros(3, dtype=torch.uint8), "is no picture"),
    ],
    ids=lambda value: re.sub(r"[^\w .*]", "", value)[:50] if isinstance(value, str) else type(value).__name__,
)
def test_mistakes_are_one_sentence(images: Any, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MaqeeError, match=hint.replace("*", r"\*") if "/*" in hint else hint) as caught:
        read(images)
    assert_one_sentence(str(caught.value))


def test_a_folder_without_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no picture")
    with pytest.raises(
        MaqeeError, match=r"holds no images: give a folder with files that end in .bmp, .jpeg"
    ) as caught:
        list_pictures(tmp_path)
    assert_one_sentence(str(caught.value))


def test_damaged_files_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    files = write_pictures(tmp_path, count=10)
    files[3].write_bytes(files[3].read_bytes()[:200])
    files[7].write_text("no picture")
    files[9].write_bytes(b"")
    with pytest.raises(MaqeeError, match=rf"3 files .*the first is {re.escape(str(files[3]))}: remove") as caught:
        read(tmp_path, batch_size=2)
    assert_one_sentence(str(caught.value))
    with pytest.raises(MaqeeError, match=rf"^{re.escape(str(files[7]))} cannot be read as an image"):
        read(files[7])
    with pytest.raises(MaqeeError, match=rf"^{re.escape(str(files[3]))} cannot be read as an image"):
        read(iter(files))  # of a stream nobody knows the end
    with Image.open(files[3]) as truncated, pytest.raises(MaqeeError, match="cannot be read as an image"):
        read(truncated)


def test_models_of_many_channels_take_tensors_only() -> None:
    many = Preprocessing(image_size=(16, 16), mean=(0.5,) * 5, std=(0.5,) * 5)
    with pytest.raises(MaqeeError, match="5 channels: give normalised tensors"):
        read(some_pixels(), many)
    assert read(torch.zeros(1, 5, 16, 16), many).shape == (1, 5, 16, 16)


def test_named_pictures_know_their_kind() -> None:
    pixels, values = list_pictures([some_pixels(), torch.zeros(3, 16, 24)])
    assert isinstance(pixels, Picture)
    assert pixels.open().size == (30, 20)
    assert isinstance(values, NormalizedPicture)
