"""Detection data in COCO's format: a json of boxes for each split, and the images in a folder or a tar.

Rules for boxes, none of them silent. A box that reaches out of its image is cut off at the edge; a box without area (or
with none left) and a crowd region are left out; both are counted in a warning. An image without boxes stays: there is
something to learn from it, too. A class that is not in the list, an image that is not there, numbers that are no box:
errors that name the file and the annotation.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from maqee.boxes import Row, clip_to_image
from maqee.data.box_targets import BOXES, pad_boxes
from maqee.data.dataset import ImageSet, Splits, hold_out
from maqee.data.images import FileEntry, FileImages
from maqee.data.readers.registry import DataOptions, readers
from maqee.errors import MaqeeError

logger = logging.getLogger(__name__)

_OFFICIAL_CLASSES, _OFFICIAL_IDS = 80, 91


@readers.register("coco")
def read_coco(options: DataOptions) -> Splits:
    """A folder or tar with SPLIT.json and SPLIT/*.jpg, or annotations/instances_SPLIT*.json as COCO comes.

    Tested on is test, or val where there is no test. Calibrated is on val where there is also a test, else on images
    held out of train (a tenth), or of val (a third) where there is nothing to train on.
    """
    return split_up(options, read_parts(options.required_path("a folder or tar in COCO's format")))


def split_up(options: DataOptions, parts: Mapping[str, ImageSet]) -> Splits:
    """Training, calibration and test sets out of the parts named train, val and test that there are."""
    train, test = parts.get("train"), parts.get("test", parts.get("val"))
    if test is None:
        raise MaqeeError(f"{options.path} has no json of a split called test or val: give data to evaluate on.")
    if train is not None and "val" in parts and "test" in parts and options.holdout is None:
        return Splits(train, parts["val"], test)
    source, share = (test, 3) if train is None else (train, 10)
    count = max(1, len(source) // share) if options.holdout is None else options.holdout
    rest, calibration = hold_out(source, count, options.seed, source.name, f"{source.name} (calibration)")
    return Splits(None, calibration, rest) if train is None else Splits(rest, calibration, test)


def read_parts(root: Path) -> dict[str, ImageSet]:
    """Every split that a folder or tar holds, by the names train, val and test."""
    files = list_files(root)
    found: dict[str, tuple[str, str]] = {}  # kind to json and folder
    for name in files:
        match = re.fullmatch(r"(?:annotations/instances_)?((train|val|test)\w*)\.json", name)
        if match is None:
            continue
        if match[2] in found:
            raise MaqeeError(f"{root} has two jsons for {match[2]}, {name} and {found[match[2]][0]}: remove one.")
        found[match[2]] = (name, match[1])
    parts = {kind: read_annotations(root, files, name, folder) for kind, (name, folder) in sorted(found.items())}
    classes = {part.classes for part in parts.values()}
    if len(classes) > 1:
        raise MaqeeError(f"{root}: the jsons do not list the same categories: use one list in all of them.")
    return parts


def list_files(root: Path) -> dict[str, FileEntry]:
    """Files of a folder, or of an uncompressed tar, by their path inside it."""
    if root.is_dir():
        found = os.walk(root, followlinks=True)  # image folders are often links to another disk
        paths = sorted(Path(folder, name) for folder, _, names in found for name in names)
        return {path.relative_to(root).as_posix(): FileEntry(str(path), path) for path in paths}
    try:
        with tarfile.open(root, "r:") as archive:  # images are read at their offset: no compression
            members = [member for member in archive.getmembers() if member.isfile()]
    except (tarfile.TarError, OSError) as error:
        raise MaqeeError(f"{root} is no readable uncompressed tar ({error}): unpack it, or copy it again.") from error
    names = [(PurePosixPath(member.name).as_posix(), member) for member in members]
    return {name: FileEntry(name, root, member.offset_data, member.size) for name, member in names}


class _Json(NamedTuple):
    """The three lists of a COCO json, by id."""

    images: dict[int, dict[str, Any]]
    boxes: dict[int, list[dict[str, Any]]]
    categories: dict[int, str]


def read_annotations(root: Path, files: Mapping[str, FileEntry], name: str, folder: str) -> ImageSet:
    """The images of one json, sorted by file name, with their boxes."""
    source = f"{name} in {root}"
    listed = _parse(files[name].read(), source)
    labels, classes = _number(listed.categories)
    entries, targets = [], []
    odd: dict[str, list[str]] = {}
    for number, image in sorted(listed.images.items(), key=lambda pair: str(pair[1]["file_name"])):
        file = str(image["file_name"])
        entry = files.get(f"{folder}/{file}") or files.get(file)
        if entry is None:
            raise MaqeeError(f"{source}: image {file!r} is neither beside the json nor in {folder}/: add it.")
        entries.append(entry)
        targets.append(_rows(listed.boxes.get(number, []), image, labels, source, odd))
    for problem, places in odd.items():
        logger.warning("%s: %d boxes %s, the first is %s", source, len(places), problem, places[0])
    if not entries:
        raise MaqeeError(f"{source} lists no images: give one that does.")
    return ImageSet(f"{root.stem} {folder}", FileImages(entries, turn=False), pad_boxes(targets), classes, BOXES)


def _parse(data: bytes, source: str) -> _Json:
    try:
        values = json.loads(data)
        images = {int(image["id"]): image | {"file_name": str(image["file_name"])} for image in values["images"]}
        categories = {int(entry["id"]): str(entry["name"]) for entry in values["categories"]}
        boxes: dict[int, list[dict[str, Any]]] = {}
        for box in values["annotations"]:
            boxes.setdefault(int(box["image_id"]), []).append(box)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MaqeeError(
            f"{source} is no COCO json (problem: {error!r}): it needs images, annotations, categories."
        ) from error
    if stray := sorted(set(boxes) - set(images)):
        raise MaqeeError(f"{source}: an annotation has image_id {stray[0]}, which is not among the images: remove it.")
    return _Json(images, boxes, categories)


def _number(categories: dict[int, str]) -> tuple[dict[int, int], tuple[str, ...]]:
    """Class numbers of category ids, and names in class order.

    Classes are numbered in the order of the ids, without gaps; only COCO's own 80 categories, whose ids go up to 90,
    keep their ids, because published detectors have 91 logits.
    """
    if len(categories) == _OFFICIAL_CLASSES and min(categories) > 0 and max(categories) < _OFFICIAL_IDS:
        names = tuple(categories.get(number, f"(no class {number})") for number in range(_OFFICIAL_IDS))
        return {number: number for number in categories}, names
    ordered = sorted(categories)
    return {number: label for label, number in enumerate(ordered)}, tuple(categories[number] for number in ordered)


def _rows(
    boxes: list[dict[str, Any]], image: dict[str, Any], labels: dict[int, int], source: str, odd: dict[str, list[str]]
) -> list[Row]:
    """Boxes of one image as shares of it; what the rules change is noted in `odd`."""
    rows = []
    for box in boxes:
        place = f"annotation {box.get('id')} of {image['file_name']}"
        if box.get("category_id") not in labels:
            raise MaqeeError(f"{source}: {place} has category_id {box.get('category_id')!r}, which is not in the list.")
        if box.get("iscrowd"):
            odd.setdefault("are crowd regions and left out", []).append(place)
            continue
        try:
            clipped = clip_to_image(box["bbox"], (image["width"], image["height"]))
        except (ValueError, TypeError, KeyError) as error:
            raise MaqeeError(f"{source}: {place} has no usable bbox, width and height (problem: {error}).") from error
        if clipped.row is None:
            odd.setdefault("have no area within the image and are left out", []).append(place)
            continue
        if clipped.cut:
            odd.setdefault("reach out of the image and are cut off", []).append(place)
        rows.append((float(labels[box["category_id"]]), *clipped.row))
    return rows
