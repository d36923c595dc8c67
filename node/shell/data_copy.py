"""A copy of a node's data while the node runs."""

import shutil
from pathlib import Path

from mayfly.cluster.log.batch import LogError, StoreRefused
from mayfly.cluster.store.folder import make_folder, sync_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.node.shell.data_folder import DataFolder, unfinished


def copy_data(store: WriteAheadStore, folder: Path) -> int:
    """Copy the log, as it is at one moment, to a folder that is not there yet; its bytes. Raises OSError."""
    draft = unfinished(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already")
    make_folder(draft, may_exist=False)
    try:
        try:
            store.copy(DataFolder(draft).log)
        except (LogError, StoreRefused) as error:
            raise OSError(str(error)) from error
        draft.rename(folder)
        sync_folder(folder.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
