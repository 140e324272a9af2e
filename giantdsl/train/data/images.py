"""Pictures in folders named by class, and how they are varied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from giantdsl.attrs import Config
from giantdsl.errors import SettingsError
from giantdsl.plan import InputInfo
from giantdsl.train.data.fields import check_fields
from giantdsl.train.data.order import Ints, generator
from giantdsl.train.data.source import BaseSource


class ImageSource(BaseSource):
    """Pictures in folders named by class: image [b, c, h, w] in -1..1 and label [b]."""

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[InputInfo],
        *,
        augment: Config | None,
        seed: int,
        shuffled: bool,
    ) -> None:
        check_fields(inputs, {"image", "label"}, "images(…)")
        info = next(i for i in inputs if i.name == "image")
        self._size = tuple(size for size in info.sizes if size is not None)
        if len(self._size) != 3:
            raise SettingsError(f"`image` is [{', '.join(info.axes)}]; pictures need [b, c, h, w]")
        self._open = _pillow()
        classes = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        self._files = [
            (f, n) for n, c in enumerate(classes) for f in sorted(c.iterdir()) if f.is_file()
        ]
        if not self._files:
            raise SettingsError(f"{folder}: no folders with pictures")
        label = next(i for i in inputs if i.name == "label")
        if label.num_classes is not None and len(classes) > label.num_classes:
            raise SettingsError(
                f"{folder} has {len(classes)} classes, the model's `{label.dtype}` has {label.num_classes}"
            )
        self._augment, self._order_seed = augment, seed
        identity = f"images|{folder}|{len(self._files)}|{augment}"
        super().__init__(len(self._files), seed=seed, shuffled=shuffled, identity=identity)

    def samples(self, positions: Ints, epochs: Ints) -> Mapping[str, Tensor]:
        pairs = zip(positions, epochs, strict=True)
        images = [self._image(int(position), int(epoch)) for position, epoch in pairs]
        labels = [self._files[int(position)][1] for position in positions]
        return {"image": torch.stack(images), "label": torch.tensor(labels)}

    def _image(self, position: int, epoch: int) -> Tensor:
        channels, height, width = self._size
        picture = self._open(self._files[position][0]).convert("RGB" if channels == 3 else "L")
        picture = picture.resize((width, height))
        if self._augment is not None:
            picture = augmented(
                picture, self._augment, generator(self._order_seed, epoch, position)
            )
        pixels = np.asarray(picture, dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(pixels.reshape(height, width, -1).transpose(2, 0, 1).copy())


def _pillow() -> Callable[[Path], Any]:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise SettingsError("`images(…)` needs the `pillow` package: pip install pillow") from None
    return Image.open


def augmented(picture: Any, augment: Config, draw: np.random.Generator) -> Any:
    """The picture varied as the setting says, by the numbers drawn."""
    from PIL import ImageOps

    if draw.random() < 0.5:
        picture = ImageOps.mirror(picture)
    if augment.name == "flip":
        return picture
    operations, strength = augment.get("operations", 2), augment.get("strength", 9)
    assert isinstance(operations, int) and isinstance(strength, int)
    for _ in range(operations):
        change = _OPERATIONS[int(draw.integers(len(_OPERATIONS)))]
        sign = 1 if draw.random() < 0.5 else -1
        picture = change(picture, strength / 30, sign)
    return picture


def _enhanced(name: str) -> Callable[[Any, float, int], Any]:
    def change(picture: Any, by: float, sign: int) -> Any:
        from PIL import ImageEnhance

        return getattr(ImageEnhance, name)(picture).enhance(1 + sign * 0.9 * by)

    return change


def _sheared(along_x: bool) -> Callable[[Any, float, int], Any]:
    def change(picture: Any, by: float, sign: int) -> Any:
        amount = sign * 0.3 * by
        matrix = (1, amount, 0, 0, 1, 0) if along_x else (1, 0, 0, amount, 1, 0)
        return _transformed(picture, matrix)

    return change


def _moved(along_x: bool) -> Callable[[Any, float, int], Any]:
    def change(picture: Any, by: float, sign: int) -> Any:
        amount = sign * 0.45 * by * picture.size[0 if along_x else 1]
        return _transformed(
            picture, (1, 0, amount if along_x else 0, 0, 1, 0 if along_x else amount)
        )

    return change


def _transformed(picture: Any, matrix: tuple[float, ...]) -> Any:
    from PIL import Image

    return picture.transform(picture.size, Image.Transform.AFFINE, matrix)


def _posterized(picture: Any, by: float, sign: int) -> Any:
    from PIL import ImageOps

    return ImageOps.posterize(picture, 8 - round(4 * by))


def _solarized(picture: Any, by: float, sign: int) -> Any:
    from PIL import ImageOps

    return ImageOps.solarize(picture, round(255 * (1 - by)))


def _contrasted(picture: Any, by: float, sign: int) -> Any:
    from PIL import ImageOps

    return ImageOps.autocontrast(picture)


def _equalized(picture: Any, by: float, sign: int) -> Any:
    from PIL import ImageOps

    return ImageOps.equalize(picture)


_OPERATIONS: tuple[Callable[[Any, float, int], Any], ...] = (
    lambda picture, by, sign: picture,
    _contrasted,
    _equalized,
    lambda picture, by, sign: picture.rotate(sign * 30 * by),
    _posterized,
    _solarized,
    _enhanced("Color"),
    _enhanced("Contrast"),
    _enhanced("Brightness"),
    _enhanced("Sharpness"),
    _sheared(True),
    _sheared(False),
    _moved(True),
    _moved(False),
)
"""The fourteen of RandAugment (Cubuk 2020): (picture, strength 0 to 1, sign)."""
