"""The settings of one node."""

from mayfly.node.settings.node_settings import (
    FRAMES_OFFSET,
    NodeSettings,
    Problem,
    SettingsError,
    TlsFiles,
    frames_address_beside,
    is_any_host,
    setting_help,
    setting_keys,
    setting_kind,
    show,
)

__all__ = [
    "FRAMES_OFFSET",
    "NodeSettings",
    "Problem",
    "SettingsError",
    "TlsFiles",
    "frames_address_beside",
    "is_any_host",
    "setting_help",
    "setting_keys",
    "setting_kind",
    "show",
]
