"""An extension of vLLM's workers that spoils what one of them holds; imported by vLLM alone."""

from __future__ import annotations

import r1lit_vllm_worker
import torch


class Extension(r1lit_vllm_worker.Extension):
    """As the one that it is derived from, with one more method."""

    def spoil(self, rank: int, layer: str, key: str, beyond: bool = False) -> None:
        """Change an element of an adapter's buffer by one bit in one worker.

        It is the last one that is not 0; with ``beyond`` the very last, where no tensor is.
        """
        if self.rank != rank:  # type: ignore[attr-defined]
            return
        manager = self.model_runner.lora_manager._adapter_manager  # type: ignore[attr-defined]
        flat = vars(manager.modules[layer])[key][0].view(-1)
        place = -1 if beyond else int(flat.nonzero()[-1])
        flat[place] = torch.nextafter(flat[place], flat[place] + 1)
