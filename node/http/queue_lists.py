"""Lists of queues: few are put in order when they are asked for, many in an order that the node keeps for a while."""

from collections.abc import Sequence

from aiohttp import web

from mayfly.node.http.listing import MOST_ROWS, Name, RowsOf, listed_by_name, listed_in_order
from mayfly.node.operating.ports.management import ManagementPort
from mayfly.node.operating.ports.users import User


async def listed_queues(request: web.Request, port: ManagementPort, user: User, rows_of: RowsOf) -> web.Response:
    """Those of the vhost in the path, or of all that the user may see."""
    vhost = request.match_info.get("vhost")
    vhosts = port.vhosts_seen(user.who) if vhost is None else [vhost]
    if port.queues_count() <= MOST_ROWS:
        return await listed_by_name(request, await port.queue_names(vhosts), rows_of)

    async def names_by(column: str) -> Sequence[Name] | None:
        return await port.queue_names_by(column, frozenset(vhosts))

    return await listed_in_order(request, names_by, rows_of)
