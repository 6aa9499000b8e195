"""Image transforms on whole batches, on whatever device the batch lies. Randomness comes in as arguments."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from maqee.models.preprocessing import Preprocessing, Resample


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move without making the host wait for the work that is already queued on a GPU."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def to_unit(pixels: Tensor) -> Tensor:
    """Bytes 0..255 to floats 0..1."""
    return pixels.float() / 255


def resize(images: Tensor, size: tuple[int, int], resample: Resample = "bicubic") -> Tensor:
    """Scale with anti-aliasing, as Pillow does; values stay within 0..1.

    torch has two of Pillow's filters (its nearest pixel is another where two are equally near). For the others the
    images go through Pillow, one channel at a time.
    """
    if tuple(images.shape[2:]) == size:
        return images
    if resample in ("bilinear", "bicubic"):
        return F.interpolate(images, size=size, mode=resample, align_corners=False, antialias=True).clamp(0, 1)
    (height, width), filter_ = size, Image.Resampling[resample.upper()]
    channels = [Image.fromarray(one) for one in images.flatten(0, 1).float().cpu().numpy()]
    scaled = np.stack([np.asarray(one.resize((width, height), filter_)) for one in channels])
    return torch.from_numpy(scaled).to(images).reshape(*images.shape[:2], height, width).clamp(0, 1)


def centre_crop(images: Tensor, preprocessing: Preprocessing, fill: float = 0) -> Tensor:
    """The middle of every image; `fill` is what stands where an image is too small for it."""
    height, width = images.shape[2:]
    (rows, columns), (top, left) = preprocessing.image_size, preprocessing.corner(height, width)
    return F.pad(images, (-left, left + columns - width, -top, top + rows - height), value=fill)  # cuts where negative


def normalize(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Values 0..1 to the range that the model wants; then subtract the mean of each channel and divide by its std."""
    mean, std = (
        to_device(torch.tensor(numbers), images.device)[:, None, None]
        for numbers in (preprocessing.mean, preprocessing.std)
    )
    if (white := 255 * preprocessing.rescale) != 1:
        images = images * white
    return (images - mean) / std


def fit(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Images to the model's size: scaled, and the centre cut out.

    Images that are already at that size, as file readers deliver them, stay as they are.
    """
    if tuple(images.shape[2:]) == preprocessing.image_size:
        return images
    height, width = images.shape[2:]
    scaled = resize(images, preprocessing.scaled_size(height, width), preprocessing.resample)
    return centre_crop(scaled, preprocessing)


def prepare(pixels: Tensor, preprocessing: Preprocessing) -> Tensor:
    """What evaluation feeds a model: bytes (n, channels, h, w) to normalised floats at the model's size."""
    return normalize(fit(to_unit(pixels), preprocessing), preprocessing)


def shift_crop(images: Tensor, shifts: Tensor, padding: int) -> Tensor:
    """Cut an image-sized window out of each image padded with zeros; shifts (n, 2) go from 0 to 2 * padding."""
    count, _, height, width = images.shape
    padded = F.pad(images, (padding,) * 4)
    rows = shifts[:, 0, None] + torch.arange(height, device=images.device)  # (n, height)
    columns = shifts[:, 1, None] + torch.arange(width, device=images.device)
    sample = torch.arange(count, device=images.device)
    return padded[sample[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def scale_crop(images: Tensor, boxes: Tensor, mode: str = "bilinear") -> Tensor:
    """Stretch a box of each image to the whole image; boxes (n, 4): top, left, height, width as shares of 1."""
    top, left, height, width = boxes.unbind(dim=1)
    zero = torch.zeros_like(top)
    across = torch.stack([width, zero, 2 * left + width - 1], dim=1)
    down = torch.stack([zero, height, 2 * top + height - 1], dim=1)
    grid = F.affine_grid(torch.stack([across, down], dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, padding_mode="reflection", align_corners=False)


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror the images marked in `mirrored` (n,)."""
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Change brightness, contrast and saturation by factors (n, 3) around 1."""
    brightness, contrast, saturation = (factor[:, None, None, None] for factor in factors.unbind(dim=1))
    images = images * brightness
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + (images - mean) * contrast
    grey = images.mean(dim=1, keepdim=True)
    return (grey + (images - grey) * saturation).clamp(0, 1)


def inside_box(images: Tensor, boxes: Tensor) -> Tensor:
    """True inside boxes (n or 1, 4) of top, left, height, width as shares of 1: (n or 1, 1, h, w)."""
    height, width = images.shape[2:]
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    top, left, tall, wide = (side[:, None] for side in boxes.unbind(dim=1))
    in_rows = (rows >= top) & (rows < top + tall)
    in_columns = (columns >= left) & (columns < left + wide)
    return (in_rows[:, :, None] & in_columns[:, None, :])[:, None]


def erase(images: Tensor, boxes: Tensor) -> Tensor:
    """Paint boxes (n, 4) grey; a box of no height leaves its image alone."""
    return torch.where(inside_box(images, boxes), torch.full_like(images, 0.5), images)
