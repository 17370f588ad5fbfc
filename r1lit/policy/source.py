"""Model sources: path, dtype and other loading options, and a digest of the weights."""

from __future__ import annotations

import hashlib
import json
from abc import ABC
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1lit.files import looked_in

if TYPE_CHECKING:
    from peft import PeftConfig
else:

    class PeftConfig(ABC):  # noqa: B024 - nothing is made of it
        """peft's class by its name: peft takes a second to import, and is an extra."""

        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            """Decide whether a class is below peft's ``PeftConfig``."""
            names = [(c.__module__.split(".")[0], c.__name__) for c in other.__mro__]
            return ("peft", "PeftConfig") in names


SETTINGS_FILE = "adapter_config.json"
GGUF = ".gguf"
Quantization = dict[str, Any]
"""Arguments of ``transformers.BitsAndBytesConfig``, ``load_in_4bit: true`` among them."""
TRAINED = ("from_scratch", "adapter", "quantization")
"""Fields that only a model that is trained may set."""


@dataclass(frozen=True)
class ModelSource:
    """A model by its path, and how its weights are held; in YAML a plain path is one too.

    ``key`` is what errors call it: the YAML key that it was given for.

    Args:
        path: a Hugging Face directory, a model's name on the hub, or a PEFT folder.
        dtype: of the weights. If left out ``float32``; in evaluation, judges and refiners
            ``bfloat16``, or ``float32`` on a CPU that has no instructions for bfloat16.
        attention: Hugging Face attention implementation.
        from_scratch: take only architecture and tokenizer from ``path``, with fresh weights.
        trust_remote_code: run Python code that comes with the model; it has your rights.
        adapter: train this adapter of peft's alone (``peft.LoraConfig``); checkpoints and exports
            hold no other weights. Where ``path`` is a PEFT folder, its adapter continues; without
            ``adapter`` it is merged, and all weights are trained.
        quantization: ``BitsAndBytesConfig`` of the weights under ``adapter``, as a mapping (QLoRA).
    """

    path: str
    _: KW_ONLY
    dtype: str | None = None
    attention: str = "sdpa"
    from_scratch: bool = False
    trust_remote_code: bool = False
    adapter: PeftConfig | None = None
    quantization: Quantization | None = None
    key: str = field(default="policy", init=False, repr=False, compare=False)

    @classmethod
    def of(cls, given: str | ModelSource, key: str | None = None) -> ModelSource:
        """Return the source that a path or a source is, named by ``key`` in errors."""
        source = cls(given) if isinstance(given, str) else given
        return source if key is None else source.but(key=key)

    @classmethod
    def frozen(cls, given: str | ModelSource, key: str) -> ModelSource:
        """Return the source of a model that is not trained.

        Raises:
            ValueError: if it has what only a trained model has.
        """
        source = cls.of(given, key)
        for name in TRAINED:
            if value := getattr(source, name):
                raise ValueError(
                    f"{key}.{name}: {value!r}, but this model is not trained; leave it out"
                )
        return source

    def but(self, **changes: Any) -> ModelSource:
        """Return the source with other values of some fields."""
        key = changes.pop("key", self.key)
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        source = ModelSource(**own | changes)
        object.__setattr__(source, "key", key)
        return source

    @property
    def options(self) -> dict[str, Any]:
        """The entries of a report: dtype, attention and whose code is run."""
        return {name: getattr(self, name) for name in ("dtype", "attention", "trust_remote_code")}

    @property
    def base(self) -> str:
        """The model whose weights are read: of a PEFT folder, what it adapts."""
        return base_of(self.path, self.key)

    @property
    def folder(self) -> str | None:
        """The PEFT folder whose adapter is read, if ``path`` is one."""
        return None if self.from_scratch or self.base == self.path else self.path


def settings_of(given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that a configuration's value of type ``str | ModelSource`` gives.

    >>> settings_of("models/mini"), settings_of({"path": "x", "dtype": "bfloat16"})
    ({'path': 'models/mini'}, {'path': 'x', 'dtype': 'bfloat16'})
    """
    return {"path": given} if isinstance(given, str) else dict(given or {})


def base_of(name_or_path: str, key: str = "policy") -> str:
    """Return the policy that a PEFT folder is an adapter of; of any other its own name.

    Raises:
        ValueError: if the folder does not say, or the policy is not there.
    """
    file = Path(name_or_path) / SETTINGS_FILE
    if not file.is_file():
        return name_or_path
    try:
        base = json.loads(file.read_text()).get("base_model_name_or_path")
    except ValueError as error:
        raise ValueError(f"{key}: {file} is not JSON ({error})") from error
    if not base:
        raise ValueError(f"{key}: {file} names no base_model_name_or_path, which it adapts")
    if Path(base).is_absolute() and not Path(base).is_dir():
        raise ValueError(
            f"{key}: {name_or_path!r} is an adapter of {base!r}, which does not exist; write where"
            f" it is now to base_model_name_or_path in {SETTINGS_FILE}"
        )
    return str(base)


def refuse_missing_directory(name_or_path: str, key: str = "policy") -> None:
    """Check that a path that looks like a directory is one with a model's configuration.

    Raises:
        ValueError: if it does not exist or holds no config.json, or is a URL or a GGUF file.
    """
    if "://" in name_or_path:
        raise ValueError(
            f"{key}: {name_or_path!r} is a URL; name a directory, or a model on the hub as"
            " owner/model"
        )
    path = Path(name_or_path)
    _refuse_gguf(path, key)
    looks_local = path.is_absolute() or name_or_path.startswith(".") or name_or_path.count("/") > 1
    looks_local |= "/" in name_or_path and path.parent.is_dir()
    if looks_local and not path.is_dir():
        raise ValueError(
            f"{key}: the directory {name_or_path!r} does not exist{looked_in(name_or_path)}"
        )
    if path.is_dir() and not any((path / f).is_file() for f in ("config.json", SETTINGS_FILE)):
        raise ValueError(f"{key}: the directory {name_or_path!r} holds no config.json")


def _refuse_gguf(path: Path, key: str) -> None:
    """Raise a ValueError with the command that makes a Hugging Face folder of a GGUF file."""
    files = [path] if path.suffix == GGUF else sorted(path.glob(f"*{GGUF}"))
    if files and not (path / "config.json").is_file():
        to = files[0].with_suffix("")
        raise ValueError(
            f"{key}: {str(files[0])!r} is a GGUF file, whose weights are quantised; make a Hugging"
            f" Face folder of it: r1lit merge {files[0]} {to} (needs pip install 'r1lit[real]')"
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().split("\n", 1)[0]


SAMPLED = 1 << 20  # bytes read at either end of a file


def policy_fingerprint(name_or_path: str) -> str | None:
    """Return a digest of a policy's weights and configuration, or None for a name on the hub.

    Of each file its name, size, first and last MiB are read, so that the digest of a large policy
    is quick, and a retrained policy still has another.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        return None
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(
        [*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("*.json")]
    ):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(SAMPLED))
            if size > SAMPLED:
                file.seek(max(SAMPLED, size - SAMPLED))
                digest.update(file.read())
    return digest.hexdigest()
