"""Sandboxes: they run model-written programs without letting them touch anything.

Not lazy, as other packages are: the worker in a sandbox has no installed packages.
"""

from r1lit.sandbox.base import Limits, Outcome, Program, Sandbox, SandboxError
from r1lit.sandbox.local import LocalSandbox

__all__ = ["Limits", "LocalSandbox", "Outcome", "Program", "Sandbox", "SandboxError"]
