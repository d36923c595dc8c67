"""The settings of one node."""

from node.settings.node_settings import (
    NodeSettings,
    Problem,
    SettingsError,
    TlsFiles,
    is_any_host,
    setting_help,
    setting_keys,
    setting_kind,
    show,
)

__all__ = [
    "NodeSettings",
    "Problem",
    "SettingsError",
    "TlsFiles",
    "is_any_host",
    "setting_help",
    "setting_keys",
    "setting_kind",
    "show",
]
