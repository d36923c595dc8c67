"""RabbitMQ's management API, one row for each method of each page: who may ask, and what for. The only place that says
which pages there are; `docs/operations/http-routes.md` is made of it (`python -m mayfly.node.http.routes_document`)."""

from typing import Final, Literal, NamedTuple

from mayfly.node.operating.ports.users import ADMINISTRATOR, MANAGEMENT_TAGS, POLICYMAKER, SEE_ALL


class Who(NamedTuple):
    """Users with one of these tags. `vhost` is what must be so of the vhost in a path that has one: that it is there,
    that the user may see it, or come to its policies; "" is nothing."""

    tags: frozenset[str]
    vhost: Literal["", "there", "seen", "policies"] = ""

    @property
    def name(self) -> str:
        """What they are called where somebody else is refused."""
        return "management" if self.tags == MANAGEMENT_TAGS else " or ".join(sorted(self.tags))


class Route(NamedTuple):
    """A method of a page. `handler` is the name of what is done, in `handlers` of the pages' classes."""

    method: str
    path: str
    who: Who | None
    """None: everybody, without a login."""
    handler: str
    about: str


READERS: Final = Who(MANAGEMENT_TAGS, "seen")
ANY_READERS: Final = Who(MANAGEMENT_TAGS, "there")
MONITORS: Final = Who(SEE_ALL)
POLICYMAKERS: Final = Who(frozenset((ADMINISTRATOR, POLICYMAKER)), "policies")
OPERATOR_POLICYMAKERS: Final = Who(frozenset((ADMINISTRATOR,)), "policies")
ADMINISTRATORS: Final = Who(frozenset((ADMINISTRATOR,)))
_ADMINISTRATORS_THERE: Final = Who(frozenset((ADMINISTRATOR,)), "there")

_ALL_VHOSTS: Final = "all-vhosts"
_CHECKS: Final = (
    ("alarms", "alarms", "no node has an alarm"),
    ("local-alarms", "local_alarms", "this node has none"),
    ("certificate-expiration/{within}/{unit}", "certificates", "this node's certificates are good for so long"),
    ("port-listener/{port}", "port", "this node listens there"),
    ("protocol-listener/{protocol}", "protocol", "this node listens for it"),
    ("virtual-hosts", "nothing", "all vhosts run: always so"),
    ("node-is-mirror-sync-critical", "nothing", "there is no mirroring: always well"),
    ("node-is-quorum-critical", "quorum", "all groups keep their majority without this node"),
    ("metadata-store/initialized", "stored", "the catalog is there"),
    ("metadata-store/initialized/with-data", "stored", "the catalog is there"),
    *(
        (f"quorum-queues-without-elected-leaders/{where}{which}", "leaders", about + among)
        for where, about in (
            (_ALL_VHOSTS, "all replicated queues have a leader"), ("vhost/{vhost}", "those of a vhost have"),
        )
        for which, among in (("", ""), ("/pattern/{pattern}", ", of names with that expression"))
    ),
    ("ready-to-serve-clients", "ready", "this node serves clients"),
    ("is-in-service", "ready", "this node serves clients"),
    ("below-node-connection-limit", "connections", "this node takes further connections"),
)
_PARAMETER: Final = "/api/parameters/{component}/{vhost}/{name}"
_GLOBAL: Final = "/api/global-parameters/{name}"
_PROTECTION: Final = "/api/vhosts/{vhost}/deletion/protection"
_SCHEDULED: Final = "/api/mayfly/queues/{vhost}/{name}/scheduled"
_REDRIVE: Final = "/api/mayfly/queues/{vhost}/{name}/redrive"
_DELAYED: Final = "/api/mayfly/exchanges/{vhost}/{name}/scheduled"
_STREAM: Final = "/api/mayfly/queues/{vhost}/{name}/stream"
_BETWEEN: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"


def _lists(what: str, who: Who, about: str) -> tuple[Route, ...]:
    """The page of all, and that of a vhost."""
    return (
        Route("GET", f"/api/{what}", who, f"{what}.list", f"all {about}"),
        Route("GET", f"/api/{what}/{{vhost}}", who, f"{what}.list", f"{about} of a vhost"),
    )


def _policies(what: str, who: Who, about: str) -> tuple[Route, ...]:
    one = f"/api/{what}/{{vhost}}/{{name}}"
    return (
        Route("GET", f"/api/{what}", who, f"{what}.all", f"all {about}"),
        Route("GET", f"/api/{what}/{{vhost}}", who, f"{what}.of_vhost", f"{about} of a vhost"),
        Route("GET", one, who, f"{what}.get", f"one of the {about}"),
        Route("PUT", one, who, f"{what}.put", "set it"),
        Route("DELETE", one, who, f"{what}.delete", "clear it"),
        Route("POST", f"{one}/try", who, f"{what}.try", "what setting it would change at once; ?limit= of queues"),
    )


def _permissions(what: str, about: str) -> tuple[Route, ...]:
    one = f"/api/{what}/{{vhost}}/{{user}}"
    return (
        Route("GET", f"/api/{what}", ADMINISTRATORS, f"{what}.list", f"all {about}"),
        Route("GET", f"/api/users/{{user}}/{what}", ADMINISTRATORS, f"{what}.list", f"{about} of a user"),
        Route("GET", f"/api/vhosts/{{vhost}}/{what}", ADMINISTRATORS, f"{what}.list", f"{about} in a vhost"),
        Route("GET", one, ADMINISTRATORS, f"{what}.get", f"{about} of a user in a vhost"),
        Route("PUT", one, ADMINISTRATORS, f"{what}.put", "set them"),
        Route("DELETE", one, ADMINISTRATORS, f"{what}.delete", "take them away"),
    )


def _limits(kind: str) -> tuple[Route, ...]:
    what, one = f"{kind}-limits", f"/api/{kind}-limits/{{{kind}}}/{{limit}}"
    return (
        Route("GET", f"/api/{what}", ADMINISTRATORS, f"{what}.list", f"limits of all {kind}s"),
        Route("GET", f"/api/{what}/{{{kind}}}", ADMINISTRATORS, f"{what}.list", f"limits of a {kind}"),
        Route("PUT", one, ADMINISTRATORS, f"{what}.put", "set one"),
        Route("DELETE", one, ADMINISTRATORS, f"{what}.delete", "take one away"),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/api/overview", READERS, "overview.get", "the cluster, its listeners and totals"),
    Route("GET", "/api/nodes", MONITORS, "nodes.list", "the members"),
    Route("GET", "/api/nodes/{name}", MONITORS, "nodes.get", "one of them"),
    Route("GET", "/api/nodes/{name}/memory", MONITORS, "nodes.memory", "its memory"),
    Route("GET", "/api/cluster-name", READERS, "cluster-name.get", "the cluster's name"),
    Route("PUT", "/api/cluster-name", ADMINISTRATORS, "cluster-name.put", "give it another"),
    Route("GET", "/api/extensions", READERS, "extensions.list", "as of a RabbitMQ without plugins"),
    Route("GET", "/api/feature-flags", ADMINISTRATORS, "feature-flags.list", "those that go with RabbitMQ's version"),
    Route("PUT", "/api/feature-flags/{name}/enable", ADMINISTRATORS, "feature-flags.enable", "all are on"),
    Route("GET", "/api/deprecated-features", ADMINISTRATORS, "nothing.list", "none"),
    Route("GET", "/api/deprecated-features/used", ADMINISTRATORS, "nothing.list", "none"),
    Route("POST", "/api/rebalance/queues", ADMINISTRATORS, "queues.rebalance", "leaders are spread all the time"),
    Route("GET", "/api/auth", None, "auth.get", "how to log in"),
    Route("GET", "/api/auth/attempts/{name}", MONITORS, "auth.attempts", "logins on this node, by protocol"),
    Route("GET", "/api/auth/attempts/{name}/source", MONITORS, "auth.sources", "where from: not kept"),
    Route("DELETE", "/api/auth/attempts/{name}", ADMINISTRATORS, "auth.forget", "count from nothing again"),
    Route("DELETE", "/api/auth/attempts/{name}/source", ADMINISTRATORS, "auth.forget", "the same"),
    Route("GET", "/api/auth/hash_password/{password}", ADMINISTRATORS, "auth.hash", "a hash to put with a user"),
    # Health checks.
    *(
        # Names of queues in all vhosts are for who sees these.
        Route(
            "GET", f"/api/health/checks/{path}", MONITORS if _ALL_VHOSTS in path else READERS, f"checks.{check}", about
        )
        for path, check, about in _CHECKS
    ),
    Route("GET", "/api/healthchecks/node", READERS, "checks.ready", "of old clients: whether this node serves"),
    Route("GET", "/api/healthchecks/node/{name}", READERS, "checks.ready_there", "of old clients, of a node"),
    # Parameters.
    *(
        Route("GET", f"/api/parameters{path}", POLICYMAKERS, "parameters.list", "operator policies, limits of vhosts")
        for path in ("", "/{component}", "/{component}/{vhost}")
    ),
    Route("GET", "/api/global-parameters", POLICYMAKERS, "global-parameters.list", "the cluster's name, id, others"),
    Route("GET", _GLOBAL, POLICYMAKERS, "global-parameters.get", "one of them"),
    Route("PUT", _GLOBAL, POLICYMAKERS, "global-parameters.put", "set it"),
    Route("DELETE", _GLOBAL, POLICYMAKERS, "global-parameters.delete", "take it away"),
    Route("GET", _PARAMETER, POLICYMAKERS, "parameters.get", "one of them"),
    Route("PUT", _PARAMETER, ADMINISTRATORS, "parameters.put", "set it"),
    Route("DELETE", _PARAMETER, ADMINISTRATORS, "parameters.delete", "take it away"),
    # Definitions.
    Route("GET", "/api/definitions", ADMINISTRATORS, "definitions.export", "all that is declared, in RabbitMQ's JSON"),
    Route("POST", "/api/definitions", ADMINISTRATORS, "definitions.import", "do what such a file says"),
    Route("GET", "/api/definitions/{vhost}", _ADMINISTRATORS_THERE, "definitions.export", "what is in a vhost"),
    Route("POST", "/api/definitions/{vhost}", _ADMINISTRATORS_THERE, "definitions.import", "into that vhost"),
    # Connections, channels, consumers.
    Route("GET", "/api/connections", READERS, "connections.list", "open connections"),
    Route("GET", "/api/vhosts/{vhost}/connections", READERS, "connections.list", "those to a vhost"),
    Route("GET", "/api/connections/username/{username}", READERS, "connections.of_user", "those of a user"),
    Route("DELETE", "/api/connections/username/{username}", READERS, "connections.close_of_user", "close them"),
    Route("GET", "/api/connections/{name}", READERS, "connections.get", "one connection"),
    Route("DELETE", "/api/connections/{name}", READERS, "connections.close", "close it; X-Reason is told it"),
    Route("GET", "/api/connections/{name}/channels", READERS, "connections.channels", "its channels"),
    Route("GET", "/api/channels", READERS, "channels.list", "open channels"),
    Route("GET", "/api/vhosts/{vhost}/channels", READERS, "channels.list", "those in a vhost"),
    Route("GET", "/api/channels/{name}", READERS, "channels.get", "one channel with its consumers"),
    Route("GET", "/api/consumers", READERS, "consumers.list", "consumers of all queues"),
    Route("GET", "/api/consumers/{vhost}", ANY_READERS, "consumers.list", "those in a vhost"),
    # Exchanges, queues, bindings, messages.
    *_lists("exchanges", READERS, "exchanges"),
    Route("GET", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.get", "one exchange"),
    Route("PUT", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.put", "declare it"),
    Route("DELETE", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.delete", "delete it; ?if-unused=true"),
    Route("POST", "/api/exchanges/{vhost}/{name}/publish", READERS, "exchanges.publish", "publish a message to it"),
    Route(
        "GET", "/api/exchanges/{vhost}/{name}/bindings/source", READERS, "exchanges.bindings_from",
        "bindings that begin there",
    ),
    Route(
        "GET", "/api/exchanges/{vhost}/{name}/bindings/destination", READERS, "exchanges.bindings_to",
        "bindings that end there",
    ),
    Route("GET", "/api/queues/detailed", READERS, "queues.list", "the same as without detailed"),
    *_lists("queues", READERS, "queues"),
    Route("GET", "/api/queues/{vhost}/{name}", READERS, "queues.get", "one queue"),
    Route("GET", "/api/mayfly/queues", READERS, "times.list", "all queues with their deadlines and leases"),
    Route("GET", "/api/mayfly/queues/{vhost}", READERS, "times.list", "those of a vhost"),
    Route("GET", "/api/mayfly/queues/{vhost}/{name}", READERS, "times.get", "one queue with its times and settings"),
    Route(
        "GET", "/api/mayfly/forecast", READERS, "forecast.get",
        "what will expire, become due or be retried, which leases end; ?within_ms= may be repeated, ?limit= of queues",
    ),
    Route("GET", "/api/mayfly/forecast/{vhost}", READERS, "forecast.get", "the same of a vhost"),
    Route("GET", _SCHEDULED, READERS, "schedules.list", "what waits for its time, in order of due times"),
    Route("DELETE", _SCHEDULED + "/{message_id}", READERS, "schedules.cancel", "cancel what waits under an id"),
    Route("PUT", _SCHEDULED + "/{message_id}", READERS, "schedules.reschedule", "have it due at another time"),
    Route("GET", "/api/mayfly/redrives", READERS, "redrives.list", "redrives under way, and the last of each queue"),
    Route("GET", "/api/mayfly/redrives/{vhost}", READERS, "redrives.list", "those of a vhost"),
    Route("GET", _REDRIVE, READERS, "redrives.get", "how far the redrive of a queue has come"),
    Route("POST", _REDRIVE, READERS, "redrives.start", "begin: back to where messages died, or to a target"),
    Route("POST", _REDRIVE + "/preview", READERS, "redrives.preview", "what that would move, and the first of it"),
    Route("PUT", _REDRIVE, READERS, "redrives.change", "pause, resume, another rate"),
    Route("DELETE", _REDRIVE, READERS, "redrives.cancel", "cancel it"),
    Route("GET", _DELAYED, READERS, "schedules.list_delayed", "what waits for a delayed exchange"),
    Route("DELETE", _DELAYED + "/{message_id}", READERS, "schedules.cancel_delayed", "cancel what waits under an id"),
    Route("PUT", _DELAYED + "/{message_id}", READERS, "schedules.reschedule_delayed", "have it due at another time"),
    Route("GET", _STREAM, READERS, "streams.get", "a stream's offsets, sizes, keys and what expires"),
    Route("GET", _STREAM + "/latest", READERS, "streams.latest", "the latest message of a routing key: ?key="),
    Route(
        "GET", _STREAM + "/journal", READERS, "streams.journal",
        "what is noted in a journal, the newest first: ?queue= of one queue, ?before= an offset, ?limit=",
    ),
    Route("DELETE", _STREAM + "/messages/{offset}", READERS, "streams.delete_message", "delete one message"),
    Route("DELETE", _STREAM + "/keys", READERS, "streams.purge_key", "delete all messages of a routing key: ?key="),
    Route("PUT", "/api/queues/{vhost}/{name}", READERS, "queues.put", "declare it"),
    Route(
        "DELETE", "/api/queues/{vhost}/{name}", READERS, "queues.delete", "delete it; ?if-empty=true ?if-unused=true"
    ),
    Route("GET", "/api/queues/{vhost}/{name}/bindings", READERS, "queues.bindings", "bindings that lead to it"),
    Route("DELETE", "/api/queues/{vhost}/{name}/contents", READERS, "queues.purge", "purge it"),
    Route("POST", "/api/queues/{vhost}/{name}/get", READERS, "queues.get_messages", "get messages from its head"),
    Route("POST", "/api/queues/{vhost}/{name}/actions", READERS, "queues.act", "actions: there are none any more"),
    *_lists("bindings", READERS, "bindings"),
    Route("GET", _BETWEEN, READERS, "bindings.between", "from an exchange to a queue (kind q) or an exchange (e)"),
    Route("POST", _BETWEEN, READERS, "bindings.bind", "make one"),
    Route("GET", _BETWEEN + "/{properties_key}", READERS, "bindings.get", "one of them"),
    Route("DELETE", _BETWEEN + "/{properties_key}", READERS, "bindings.unbind", "undo it"),
    Route("GET", "/api/aliveness-test/{vhost}", READERS, "aliveness.test", "declares a queue, publishes and gets"),
    # Policies.
    *_policies("policies", POLICYMAKERS, "policies"),
    *_policies("operator-policies", OPERATOR_POLICYMAKERS, "operator policies"),
    # Users, vhosts, permissions, limits.
    Route("GET", "/api/whoami", Who(MANAGEMENT_TAGS), "whoami.get", "who is logged in"),
    Route("GET", "/api/users", ADMINISTRATORS, "users.list", "all users"),
    Route("GET", "/api/users/without-permissions", ADMINISTRATORS, "users.without_permissions", "those without any"),
    Route("POST", "/api/users/bulk-delete", ADMINISTRATORS, "users.bulk_delete", "delete several"),
    Route("GET", "/api/users/{user}", ADMINISTRATORS, "users.get", "one user"),
    Route("PUT", "/api/users/{user}", ADMINISTRATORS, "users.put", "add or change it"),
    Route("DELETE", "/api/users/{user}", ADMINISTRATORS, "users.delete", "delete it; its connections are closed"),
    Route("GET", "/api/vhosts", Who(MANAGEMENT_TAGS), "vhosts.list", "vhosts that the user may see"),
    Route("GET", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.get", "one vhost"),
    Route("PUT", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.put", "add or change it"),
    Route("DELETE", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.delete", "delete it with all in it"),
    Route("GET", _PROTECTION, ADMINISTRATORS, "vhosts.protection", "whether it is protected from deletion"),
    Route("POST", _PROTECTION, ADMINISTRATORS, "vhosts.protect", "protect it"),
    Route("DELETE", _PROTECTION, ADMINISTRATORS, "vhosts.unprotect", "let it be deleted again"),
    Route("POST", "/api/vhosts/{vhost}/start/{node}", ADMINISTRATORS, "vhosts.start", "it runs on all nodes"),
    *_permissions("permissions", "permissions"),
    *_permissions("topic-permissions", "topic permissions"),
    Route(
        "DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", ADMINISTRATORS, "topic-permissions.delete",
        "take those at one exchange away",
    ),
    *_limits("vhost"),
    *_limits("user"),
)  # fmt: skip
"""In the order in which paths are matched."""


def index() -> dict[str, str]:
    """What there is, by path."""
    pages: dict[str, list[str]] = {}
    for route in ROUTES:
        pages.setdefault(route.path, []).append(f"{route.method}: {route.about}")
    return {path: "; ".join(texts) for path, texts in pages.items()}
