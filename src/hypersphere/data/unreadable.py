"""Files that could not be read: listed in a file, and told in one line."""

from collections.abc import Mapping
from pathlib import Path

from hypersphere.data.folder import shown
from hypersphere.files import write_atomically
from hypersphere.progress import tell


def tell_unreadable(unreadable: Mapping[Path | str, str], listed: Path) -> None:
    """Each with its reason into the file `listed`, some of them on standard error."""
    if unreadable:
        lines = [f"{shown(file)}\t{reason}\n" for file, reason in sorted(unreadable.items(), key=str)]
        write_atomically(listed, "".join(lines).encode())
        some = ", ".join(f"{Path(shown(file)).name} ({reason})" for file, reason in list(unreadable.items())[:3])
        more = ", …" if len(unreadable) > 3 else ""
        count = f"{len(unreadable)} file" + "s" * (len(unreadable) > 1)
        tell(f"{count} could not be read: {some}{more}; all are listed in {shown(listed)}")
