"""Every setting on a page: `python -m mayfly.node.settings.reference > docs/settings.md`."""

from typing import Final

from mayfly.node.settings.node_settings import NodeSettings, setting_help, setting_keys, setting_kind, show

_HEAD: Final = """\
# Settings

Each key is written the same way in a TOML file (`mayfly node --config FILE`), as `MAYFLY_` and the key in capitals in
the environment, and with dashes as an option: `tick_ms`, `MAYFLY_TICK_MS`, `--tick-ms`. An option beats the
environment, the environment beats the file, the file beats the default; the settings in use are in the first lines of a
node's log. A key that does not exist, or a value that cannot be, is refused with what would be right, exit code 78.

Sizes take units (`512MiB`, `2GB`); everything that ends in `_ms` is in milliseconds.

| setting | default | values | what for |
|---|---|---|---|
"""


def page() -> str:
    """The page, in Markdown."""
    return _HEAD + "".join(
        f"| `{key}` | {_default(key)} | {_cell(setting_kind(key).hint())} | {_explanation(key)} |\n"
        for key in setting_keys()
    )


def _default(key: str) -> str:
    text = show(key, _DEFAULTS[key].default)
    return f"`{text}`" if text else "-"


def _explanation(key: str) -> str:
    """What it is for; of its default only what the column before does not say."""
    text, _, default = setting_help(key).removesuffix("]").partition(" [default: ")
    says_more = default not in ("", "none", show(key, _DEFAULTS[key].default))
    return _cell(f"{text} (default: {default})" if says_more else text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


_DEFAULTS: Final = NodeSettings.__dataclass_fields__

if __name__ == "__main__":
    print(page(), end="")
