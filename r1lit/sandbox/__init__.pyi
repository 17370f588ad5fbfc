from .base import (
    Limits as Limits,
    Outcome as Outcome,
    Program as Program,
    Sandbox as Sandbox,
    SandboxError as SandboxError,
)
from .local import LocalSandbox as LocalSandbox
