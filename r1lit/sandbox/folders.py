"""Two folders in the open, for machines that offer no protection and users who allow that."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile


class Folders:
    """What ``View`` is, without one: the program sees all that its user may see.

    ``owner`` is the user id that the scratch folder will belong to, ``None`` for this process's;
    ``packages`` are folders of packages to import from.
    """

    def __init__(self, owner: int | None, packages: list[str]) -> None:
        self.packages = packages
        self._owner = owner
        self._above = tempfile.mkdtemp(prefix="program-")
        os.chmod(self._above, 0o711)
        self.program, self.scratch = f"{self._above}/program", f"{self._above}/scratch"
        self.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir(self.program, 0o755)
        self.renew_scratch()

    def seal(self) -> None:
        """Make the program's folder read-only to others than its owner."""
        os.chmod(self.program, 0o755)

    def renew_scratch(self) -> None:
        """Replace the scratch folder by an empty one."""
        _remove(self.scratch)
        os.mkdir(self.scratch, 0o700)
        if self._owner is not None:
            os.chown(self.scratch, self._owner, self._owner)

    def leave(self) -> None:
        """Remove the folders."""
        _remove(self._above)


def _remove(folder: str) -> None:
    """Remove a folder, also where a program took the right to do so."""
    for above, names, _ in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(above, name), 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)
