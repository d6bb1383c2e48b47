"""The Hugging Face Hub's mixin around a network, imported only when it is used."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download

from torchcaps.models.network import Network
from torchcaps.models.weights.card import model_card
from torchcaps.models.weights.files import architecture, load, save

FILE = "model.safetensors"


class HubNetwork(ModelHubMixin, library_name="torchcaps"):
    """A network with the Hub's ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write weights, config and model card."""
        options.setdefault("config", architecture(self.network))
        written: str | None = super().save_pretrained(save_directory, **options)
        return written

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload weights, config and model card."""
        options.setdefault("config", architecture(self.network))
        address: str = super().push_to_hub(repo_id, **options)
        return address

    def generate_model_card(self, *args: Any, **options: Any) -> ModelCard:
        """Return the model card, with the results of the run behind the weights."""
        return model_card(self.network)

    def _save_pretrained(self, save_directory: Path) -> None:
        save(self.network, save_directory / FILE)

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
        **options: Any,
    ) -> "HubNetwork":
        unknown = sorted(set(options) - {"network"})  # the mixin adds what config.json names
        if unknown:
            raise ValueError(f"from_pretrained does not know {', '.join(unknown)}")
        folder = Path(model_id)
        if folder.is_dir():
            return cls(load(folder / FILE))
        path = hf_hub_download(
            model_id,
            FILE,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
        )
        return cls(load(path))
