"""Models described by a ``config.json`` of the Hugging Face Hub."""

from crosstack.io.huggingface.read import ARCHITECTURES, is_config, read_config, transformer_of

__all__ = ["ARCHITECTURES", "is_config", "read_config", "transformer_of"]
