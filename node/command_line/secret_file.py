"""The cluster secret of nodes that one command starts on this machine: made up once, beside their data."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from mayfly.cluster.store.folder import make_folder
from mayfly.node.settings import SettingsError
from mayfly.node.settings.sources import load_settings

FILE: Final = "cluster-secret"
_OCTETS: Final = 32


def secret_file(data_dir: Path, config: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The file with the secret in the folder of the nodes' folders, which its owner alone may read; made if it is not
    there. None: the settings name a secret themselves, or are wrong, which a node says better. Raises OSError."""
    try:
        given = load_settings(config, environment)
    except SettingsError:
        return None
    if given.cluster_secret or given.cluster_secret_file is not None:
        return None
    path = data_dir.absolute() / FILE
    if not path.exists():
        make_folder(path.parent)
        draft = path.with_name(f"{FILE}.unfinished")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{secrets.token_urlsafe(_OCTETS)}\n")
            # An empty one after a power cut would keep every node from starting.
            file.flush()
            os.fsync(file.fileno())
        # Another one may have made it meanwhile: then that one counts for both.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path
