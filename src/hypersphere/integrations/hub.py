"""Trained encoders on the Hugging Face Hub, with `from_pretrained`, `save_pretrained` and `push_to_hub`."""

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hypersphere.errors import UserError
from hypersphere.inference.loading import Loaded, Picture, load, plain, weights_as_bytes
from hypersphere.nn.weights import CARD, HUB_WEIGHTS, WEIGHTS, exported_weights
from hypersphere.util.files import as_json, write_atomically
from hypersphere.util.trust import remember_own_file

try:
    from huggingface_hub import ModelHubMixin, snapshot_download
except ImportError:
    raise UserError("hypersphere.integrations.hub needs huggingface_hub: pip install huggingface_hub") from None


class Encoder(nn.Module, ModelHubMixin, library_name="hypersphere", tags=["image-feature-extraction", "hypersphere"]):
    """A trained encoder with its preprocessing, as a module that the Hugging Face Hub can keep.

    `Encoder.from_pretrained("USER/NAME")` loads one from the Hub, or from a folder of `hypersphere export`.
    `save_pretrained(folder)` and `push_to_hub("USER/NAME")` write it, also after fine-tuning.

    Args:
        folder: A folder that `hs.export` wrote, or the folder of a run.
        device: Device for the encoder.
        trust: Whether to import and run code that the folder names.

    Attributes:
        encoder: The network, in evaluation mode.
        preprocess: Function that turns an image into the input of the network.
        features: Number of features of an image.

    Raises:
        UserError: If there is no encoder, or its files are damaged.

    Example:
        >>> from hypersphere.integrations.hub import Encoder  # doctest: +SKIP
        >>> encoder = Encoder.from_pretrained("USER/NAME")  # doctest: +SKIP
        >>> encoder.encode(["photo.jpg"]).shape  # doctest: +SKIP
        torch.Size([1, 512])
    """

    def __init__(self, folder: str | Path, device: str = "cpu", *, trust: bool = False) -> None:
        super().__init__()
        loaded = load(folder, device, trust=trust)
        self.folder, self.encoder, self.preprocess = Path(folder), loaded.encoder, loaded.preprocess
        self.features = loaded.features
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, D) of normalized images (N, C, H, W), with a gradient."""
        return self.encoder(images)

    def encode(self, pictures: Iterable[Picture]) -> Tensor:
        """Features of images, which may be paths, PIL images, contents of files or uint8 arrays; without a gradient."""
        training = self.training
        try:
            return Loaded(self.folder, self.encoder.eval(), self.preprocess).encode(pictures)
        finally:
            self.train(training)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        device: str = "cpu",
        trust: bool = False,
        **unused: Any,
    ) -> "Encoder":
        folder = model_id
        if not Path(model_id).is_dir():
            folder = snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=["*.json", "*.safetensors", "*.md"],
            )
        return cls(folder, device, trust=trust)

    def _save_pretrained(self, save_directory: Path) -> None:
        """The files of the folder, with the weights as they are now."""
        if not (self.folder / CARD).is_file():
            raise UserError(f"{self.folder} is a run: load the folder that hypersphere export --format hub writes")
        blob = weights_as_bytes(plain(self.encoder))
        card = json.loads((self.folder / CARD).read_text(encoding="utf-8"))
        changed = exported_weights(self.folder).read_bytes() != blob
        card["weights"] = {"file": HUB_WEIGHTS, "sha256": hashlib.sha256(blob).hexdigest()}
        if changed:
            card["metrics"] = {}  # of the weights before
        if self.folder.resolve() != save_directory.resolve():
            for file in self.folder.glob("*"):
                if file.suffix in (".json", ".md") and file.name != CARD and not (changed and file.suffix == ".md"):
                    shutil.copyfile(file, save_directory / file.name)
            (save_directory / WEIGHTS).unlink(missing_ok=True)
        write_atomically(save_directory / HUB_WEIGHTS, blob)
        write_atomically(save_directory / CARD, as_json(card))
        remember_own_file(save_directory / CARD)
