"""`mayfly node`: one node in this process, or several as processes below it."""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mayfly.node.command_line.parent import stop_with_parent
from mayfly.node.command_line.processes import refuse_surplus, resolve_processes, run_processes
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import ClusterError
from mayfly.node.settings import NodeSettings, SettingsError, setting_help, setting_keys, setting_kind
from mayfly.node.settings.kinds import Switch
from mayfly.node.settings.processes import check_processes
from mayfly.node.settings.sources import keys_given, load_settings, no_option_of, option_of
from mayfly.node.shell.build import describe_version, failed_to_compile, why_not_compiled
from mayfly.node.shell.log_lines import configure_logging
from mayfly.node.shell.open_files import allowed_files, raise_open_files_limit, share_out
from mayfly.node.shell.private_files import keeping_private
from mayfly.node.shell.process_memory import share_one_heap

if TYPE_CHECKING:
    from mayfly.node.shell.console import Console
    from mayfly.node.shell.process import NodeProcess

_LOG: Final = logging.getLogger(__name__)

_AUTHORITIES: Final = "SSL_CERT_FILE"
"""What OpenSSL reads the system's authorities from."""
_WAY_OUT: Final = (
    "Nothing was changed in %s. If other nodes of its cluster are up, empty that folder: the node joins as a new "
    "member and gets from them what it had. For a node alone put a backup in its place. See 'A node whose data is "
    "damaged' in docs/operations/troubleshoot.md"
)


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for every setting; what was not given stays None."""
    for key in reversed(setting_keys()):
        kind = setting_kind(key)
        if isinstance(kind, Switch):
            declaration = f"{option_of(key)}/{no_option_of(key)}"
            command = click.option(declaration, key, default=None, help=setting_help(key))(command)
        else:
            metavar = kind.placeholder
            command = click.option(option_of(key), key, metavar=metavar, help=setting_help(key))(command)
    return command


@click.command("node")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="MAYFLY_CONFIG",
    help="TOML file with settings, by the names below with '_' for '-'.",
)
@click.option("--stop-with-parent", type=int, hidden=True, help="End when this process, our parent, ends.")
@click.option("--log-as", default="", hidden=True, help="What a supervisor calls this process, for log lines.")
@_setting_options
def command(config: Path | None, stop_with_parent: int | None, log_as: str, **options: object) -> None:
    """Run one node, or with --processes several of one cluster.

    Without options it is a complete broker on 127.0.0.1:5672 with its data in ./mayfly-data. Every setting
    can also stand in a TOML file (--config) or in the environment (MAYFLY_NAME for --name); an option wins
    over the environment, which wins over the file.
    """
    click.get_current_context().with_resource(keeping_private())
    # gRPC's own words about peers that come and go; ours are in the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    given: Mapping[str, object] = {key: value for key, value in options.items() if value is not None}
    try:
        settings = load_settings(config, os.environ, given)
        configure_logging(settings.log_level, log_as, settings.log_format)
        settings, given = resolve_processes(settings, keys_given(config, os.environ, given), given)
        if settings.processes > 1:
            check_processes(settings)
    except SettingsError as error:
        raise exit_codes.BadSettings(error) from None
    if stop_with_parent is not None:
        _follow_parent(stop_with_parent)
    share_one_heap()
    _LOG.info("mayfly %s", describe_version())
    if failed_to_compile():
        _LOG.warning("this build is three times as slow as one that is compiled: %s", why_not_compiled())
    _LOG.info("settings: %s", ", ".join(f"{key}={value}" for key, value in settings.describe().items() if value))
    raise_open_files_limit()
    if settings.processes == 1:
        _say_how_many_clients_fit()
    try:
        if settings.processes > 1:
            sys.exit(run_processes(settings, given, config))
        if not log_as:
            refuse_surplus(settings)
    except SettingsError as error:
        raise exit_codes.BadSettings(error) from None
    except ClusterError as error:
        raise click.ClickException(str(error)) from None
    # A page of the log's map that the disk doesn't give ends the process (SIGBUS): else it would without a word.
    with contextlib.suppress(RuntimeError, ValueError, OSError):  # Nobody reads it where there is no standard error.
        faulthandler.enable()
    sys.exit(_event_loop_runner()(_serve(settings, supervised=stop_with_parent is not None)))


def _say_how_many_clients_fit() -> None:
    files = share_out(allowed_files())
    if files.warning is not None:
        _LOG.warning("%s", files.warning)
    else:
        _LOG.info("open files allowed: %s", files.allowed)


_follow_parent = stop_with_parent


def _event_loop_runner() -> Callable[[Any], int]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _serve(settings: NodeSettings, supervised: bool) -> int:
    """Run the node until SIGTERM or SIGINT; the exit code."""
    # Modules give little up while they are loaded, and looking for that is a tenth of what it takes. `NodeProcess` has
    # it done again.
    gc.disable()
    with _without_authorities():
        from mayfly.cluster.log.batch import LogError, StoreDamaged, StoreUnfit
        from mayfly.node.shell.arrival import NodeRefused
        from mayfly.node.shell.console import Console
        from mayfly.node.shell.data_folder import DataFolder
        from mayfly.node.shell.process import NodeProcess
    # All that was loaded stays. To look at it for what nobody needs takes 50 ms and more, for half a megabyte.
    gc.freeze()

    process = NodeProcess(settings)
    console = Console()
    console.use(process)
    stop_asked = _stop_on_signals(supervised)
    try:
        # Of the process that runs then: it may be another one.
        with _opened(console, settings), _reload_on_hang_up(settings, lambda: process.reload_certificates()):
            try:
                return await _run(process, settings, stop_asked, console)
            except NodeRefused as refused:
                if not process.ending.may_join_anew():
                    raise
                _LOG.warning("%s; it never served, so it gives its data up and joins as a new member", refused)
            DataFolder(settings.data_dir).begin_anew()
            process = NodeProcess(settings)
            console.use(process)
            return await _run(process, settings, stop_asked, console)
    except (OSError, NodeRefused, LogError) as error:
        way_out = f". {_WAY_OUT % settings.data_dir}" if isinstance(error, StoreDamaged) else ""
        _LOG.error("%s cannot start: %s%s", settings.name or "the node", error, way_out)
        final = isinstance(error, StoreUnfit) or (isinstance(error, NodeRefused) and process.ending.may_not_go_on())
        return exit_codes.REFUSED if final else 1


@contextlib.contextmanager
def _without_authorities() -> Iterator[None]:
    """Contexts for TLS that are made meanwhile know no authorities of the system.

    aiohttp makes one when it is loaded, for requests that say nothing about TLS; a node makes none such. The
    authorities take 2 MB, and 17 ms to read."""
    known = os.environ.get(_AUTHORITIES)
    os.environ[_AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        if known is None:
            del os.environ[_AUTHORITIES]
        else:
            os.environ[_AUTHORITIES] = known


async def _run(
    process: "NodeProcess", settings: NodeSettings, stop_asked: asyncio.Event, console: "Console"
) -> int:
    asked = asyncio.create_task(stop_asked.wait())
    starting = asyncio.create_task(process.start())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # Nobody was served yet and the log is always ready for a crash: there is nothing to finish.
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    node = await starting
    console.serves(node)
    beside = settings.amqp_tls_address
    _LOG.info(
        "%s (node %d) serves: AMQP %s%s, HTTP %s, peers %s, their frames %s, data in %s",
        *(node.opened.name, node.opened.identity.node, settings.amqp_address),
        *("" if beside is None else f" (TLS {beside})", settings.http_address),
        *(settings.peer_address, settings.frames_listen_address, settings.data_dir),
    )
    running = asyncio.create_task(process.ending.stopped.wait())
    try:
        await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
        if asked.done():
            draining = asyncio.create_task(node.control.drain_before_stop())
            await asyncio.wait({running, draining}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            return 0
        await running
        _LOG.error("%s stopped by itself: %s", settings.name, process.ending.failure or "no reason given")
        return exit_codes.REFUSED if process.ending.may_not_go_on() else 1
    finally:
        asked.cancel()
        await process.stop()
        running.cancel()


def _stop_on_signals(supervised: bool) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; the second signal ends the process at once.

    Not where it is supervised: a service manager tells every process, and the supervisor tells its children once more.
    A supervisor that does not want to wait kills.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if asked.is_set() and supervised:
            _LOG.info("%s again: stopping already", number.name)
            return
        if asked.is_set():
            _LOG.warning("%s again: not waiting any longer", number.name)
            os._exit(128 + number)
        _LOG.info("%s: stopping", number.name)
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    return asked


@contextlib.contextmanager
def _reload_on_hang_up(settings: NodeSettings, reload: Callable[[], None]) -> Iterator[None]:
    """SIGHUP has the certificates read again; where there are none it means what it always does."""
    if not settings.has_tls:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _opened(console: "Console", settings: NodeSettings) -> contextlib.AbstractContextManager[object]:
    """The console, where it is switched on."""
    return console.opened(settings.aiomonitor_port) if settings.aiomonitor else contextlib.nullcontext()
