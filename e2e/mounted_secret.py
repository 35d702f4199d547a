"""A folder that changes as the kubelet changes a mounted Secret: one link is swapped, so all files change at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class MountedSecret:
    """Files that are links into ``..data``, itself a link to the present generation."""

    def __init__(self, folder: Path) -> None:
        """Mount nothing yet."""
        self._folder = folder
        self._generation = 0

    def write(self, contents: Mapping[str, bytes]) -> None:
        """Replace all files by these."""
        self._generation += 1
        generation = self._folder / f"..generation_{self._generation}"
        generation.mkdir(parents=True)
        for name, content in contents.items():
            (generation / name).write_bytes(content)
            link = self._folder / name
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}")
        temporary = self._folder / "..data_tmp"
        temporary.symlink_to(generation.name)
        temporary.rename(self._folder / "..data")

    def path(self, name: str) -> str:
        """Return the path of a file, which stays the same."""
        return str(self._folder / name)
