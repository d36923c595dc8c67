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


class ApiRoute(NamedTuple):
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
_BRAKE: Final = "/api/mayfly/queues/{vhost}/{name}/brake/release"
_DELAYED: Final = "/api/mayfly/exchanges/{vhost}/{name}/scheduled"
_STREAM: Final = "/api/mayfly/queues/{vhost}/{name}/stream"
_BETWEEN: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"


def _lists(what: str, who: Who, about: str) -> tuple[ApiRoute, ...]:
    """The page of all, and that of a vhost."""
    return (
        ApiRoute("GET", f"/api/{what}", who, f"{what}.list", f"all {about}"),
        ApiRoute("GET", f"/api/{what}/{{vhost}}", who, f"{what}.list", f"{about} of a vhost"),
    )


def _policies(what: str, who: Who, about: str) -> tuple[ApiRoute, ...]:
    one = f"/api/{what}/{{vhost}}/{{name}}"
    return (
        ApiRoute("GET", f"/api/{what}", who, f"{what}.all", f"all {about}"),
        ApiRoute("GET", f"/api/{what}/{{vhost}}", who, f"{what}.of_vhost", f"{about} of a vhost"),
        ApiRoute("GET", one, who, f"{what}.get", f"one of the {about}"),
        ApiRoute("PUT", one, who, f"{what}.put", "set it"),
        ApiRoute("DELETE", one, who, f"{what}.delete", "clear it"),
        ApiRoute("POST", f"{one}/try", who, f"{what}.try", "what setting it would change at once; ?limit= of queues"),
    )


def _permissions(what: str, about: str) -> tuple[ApiRoute, ...]:
    one = f"/api/{what}/{{vhost}}/{{user}}"
    return (
        ApiRoute("GET", f"/api/{what}", ADMINISTRATORS, f"{what}.list", f"all {about}"),
        ApiRoute("GET", f"/api/users/{{user}}/{what}", ADMINISTRATORS, f"{what}.list", f"{about} of a user"),
        ApiRoute("GET", f"/api/vhosts/{{vhost}}/{what}", ADMINISTRATORS, f"{what}.list", f"{about} in a vhost"),
        ApiRoute("GET", one, ADMINISTRATORS, f"{what}.get", f"{about} of a user in a vhost"),
        ApiRoute("PUT", one, ADMINISTRATORS, f"{what}.put", "set them"),
        ApiRoute("DELETE", one, ADMINISTRATORS, f"{what}.delete", "take them away"),
    )


def _limits(kind: str) -> tuple[ApiRoute, ...]:
    what, one = f"{kind}-limits", f"/api/{kind}-limits/{{{kind}}}/{{limit}}"
    return (
        ApiRoute("GET", f"/api/{what}", ADMINISTRATORS, f"{what}.list", f"limits of all {kind}s"),
        ApiRoute("GET", f"/api/{what}/{{{kind}}}", ADMINISTRATORS, f"{what}.list", f"limits of a {kind}"),
        ApiRoute("PUT", one, ADMINISTRATORS, f"{what}.put", "set one"),
        ApiRoute("DELETE", one, ADMINISTRATORS, f"{what}.delete", "take one away"),
    )


ROUTES: Final[tuple[ApiRoute, ...]] = (
    ApiRoute("GET", "/api/overview", READERS, "overview.get", "the cluster, its listeners and totals"),
    ApiRoute("GET", "/api/nodes", MONITORS, "nodes.list", "the members"),
    ApiRoute("GET", "/api/nodes/{name}", MONITORS, "nodes.get", "one of them"),
    ApiRoute("GET", "/api/nodes/{name}/memory", MONITORS, "nodes.memory", "its memory"),
    ApiRoute("GET", "/api/cluster-name", READERS, "cluster-name.get", "the cluster's name"),
    ApiRoute("PUT", "/api/cluster-name", ADMINISTRATORS, "cluster-name.put", "give it another"),
    ApiRoute("GET", "/api/extensions", READERS, "extensions.list", "as of a RabbitMQ without plugins"),
    ApiRoute(
        "GET", "/api/feature-flags", ADMINISTRATORS, "feature-flags.list", "those that go with RabbitMQ's version"
    ),
    ApiRoute("PUT", "/api/feature-flags/{name}/enable", ADMINISTRATORS, "feature-flags.enable", "all are on"),
    ApiRoute("GET", "/api/deprecated-features", ADMINISTRATORS, "nothing.list", "none"),
    ApiRoute("GET", "/api/deprecated-features/used", ADMINISTRATORS, "nothing.list", "none"),
    ApiRoute("POST", "/api/rebalance/queues", ADMINISTRATORS, "queues.rebalance", "leaders are spread all the time"),
    ApiRoute("GET", "/api/auth", None, "auth.get", "how to log in"),
    ApiRoute("GET", "/api/auth/attempts/{name}", MONITORS, "auth.attempts", "logins on this node, by protocol"),
    ApiRoute("GET", "/api/auth/attempts/{name}/source", MONITORS, "auth.sources", "where from: not kept"),
    ApiRoute("DELETE", "/api/auth/attempts/{name}", ADMINISTRATORS, "auth.forget", "count from nothing again"),
    ApiRoute("DELETE", "/api/auth/attempts/{name}/source", ADMINISTRATORS, "auth.forget", "the same"),
    ApiRoute("GET", "/api/auth/hash_password/{password}", ADMINISTRATORS, "auth.hash", "a hash to put with a user"),
    # Health checks.
    *(
        # Names of queues in all vhosts are for who sees these.
        ApiRoute(
            "GET", f"/api/health/checks/{path}", MONITORS if _ALL_VHOSTS in path else READERS, f"checks.{check}", about
        )
        for path, check, about in _CHECKS
    ),
    ApiRoute("GET", "/api/healthchecks/node", READERS, "checks.ready", "of old clients: whether this node serves"),
    ApiRoute("GET", "/api/healthchecks/node/{name}", READERS, "checks.ready_there", "of old clients, of a node"),
    # Parameters.
    *(
        ApiRoute(
            "GET", f"/api/parameters{path}", POLICYMAKERS, "parameters.list", "operator policies, limits of vhosts"
        )
        for path in ("", "/{component}", "/{component}/{vhost}")
    ),
    ApiRoute("GET", "/api/global-parameters", POLICYMAKERS, "global-parameters.list", "the cluster's name, id, others"),
    ApiRoute("GET", _GLOBAL, POLICYMAKERS, "global-parameters.get", "one of them"),
    ApiRoute("PUT", _GLOBAL, POLICYMAKERS, "global-parameters.put", "set it"),
    ApiRoute("DELETE", _GLOBAL, POLICYMAKERS, "global-parameters.delete", "take it away"),
    ApiRoute("GET", _PARAMETER, POLICYMAKERS, "parameters.get", "one of them"),
    ApiRoute("PUT", _PARAMETER, ADMINISTRATORS, "parameters.put", "set it"),
    ApiRoute("DELETE", _PARAMETER, ADMINISTRATORS, "parameters.delete", "take it away"),
    # Definitions.
    ApiRoute(
        "GET", "/api/definitions", ADMINISTRATORS, "definitions.export", "all that is declared, in RabbitMQ's JSON"
    ),
    ApiRoute("POST", "/api/definitions", ADMINISTRATORS, "definitions.import", "do what such a file says"),
    ApiRoute("GET", "/api/definitions/{vhost}", _ADMINISTRATORS_THERE, "definitions.export", "what is in a vhost"),
    ApiRoute("POST", "/api/definitions/{vhost}", _ADMINISTRATORS_THERE, "definitions.import", "into that vhost"),
    # Connections, channels, consumers.
    ApiRoute("GET", "/api/connections", READERS, "connections.list", "open connections"),
    ApiRoute("GET", "/api/vhosts/{vhost}/connections", READERS, "connections.list", "those to a vhost"),
    ApiRoute("GET", "/api/connections/username/{username}", READERS, "connections.of_user", "those of a user"),
    ApiRoute("DELETE", "/api/connections/username/{username}", READERS, "connections.close_of_user", "close them"),
    ApiRoute("GET", "/api/connections/{name}", READERS, "connections.get", "one connection"),
    ApiRoute("DELETE", "/api/connections/{name}", READERS, "connections.close", "close it; X-Reason is told it"),
    ApiRoute("GET", "/api/connections/{name}/channels", READERS, "connections.channels", "its channels"),
    ApiRoute("GET", "/api/channels", READERS, "channels.list", "open channels"),
    ApiRoute("GET", "/api/vhosts/{vhost}/channels", READERS, "channels.list", "those in a vhost"),
    ApiRoute("GET", "/api/channels/{name}", READERS, "channels.get", "one channel with its consumers"),
    ApiRoute("DELETE", "/api/mayfly/channels/{name}", READERS, "channels.close", "close it; X-Reason is told it"),
    ApiRoute("DELETE", "/api/mayfly/channels/{name}/consumers/{tag}", READERS, "consumers.cancel", "cancel a consumer"),
    ApiRoute("GET", "/api/consumers", READERS, "consumers.list", "consumers of all queues"),
    ApiRoute("GET", "/api/consumers/{vhost}", ANY_READERS, "consumers.list", "those in a vhost"),
    # Exchanges, queues, bindings, messages.
    *_lists("exchanges", READERS, "exchanges"),
    ApiRoute("GET", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.get", "one exchange"),
    ApiRoute("PUT", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.put", "declare it"),
    ApiRoute("DELETE", "/api/exchanges/{vhost}/{name}", READERS, "exchanges.delete", "delete it; ?if-unused=true"),
    ApiRoute("POST", "/api/exchanges/{vhost}/{name}/publish", READERS, "exchanges.publish", "publish a message to it"),
    ApiRoute(
        "GET", "/api/exchanges/{vhost}/{name}/bindings/source", READERS, "exchanges.bindings_from",
        "bindings that begin there",
    ),
    ApiRoute(
        "GET", "/api/exchanges/{vhost}/{name}/bindings/destination", READERS, "exchanges.bindings_to",
        "bindings that end there",
    ),
    ApiRoute("GET", "/api/queues/detailed", READERS, "queues.list", "the same as without detailed"),
    *_lists("queues", READERS, "queues"),
    ApiRoute("GET", "/api/queues/{vhost}/{name}", READERS, "queues.get", "one queue"),
    ApiRoute("GET", "/api/mayfly/queues", READERS, "times.list", "all queues with their deadlines and leases"),
    ApiRoute("GET", "/api/mayfly/queues/{vhost}", READERS, "times.list", "those of a vhost"),
    ApiRoute("GET", "/api/mayfly/queues/{vhost}/{name}", READERS, "times.get", "one queue with its times and settings"),
    ApiRoute(
        "GET", "/api/mayfly/forecast", READERS, "forecast.get",
        "what will expire, become due or be retried, which leases end; ?within_ms= may be repeated, ?limit= of queues",
    ),
    ApiRoute("GET", "/api/mayfly/forecast/{vhost}", READERS, "forecast.get", "the same of a vhost"),
    ApiRoute("GET", _SCHEDULED, READERS, "schedules.list", "what waits for its time, in order of due times"),
    ApiRoute("DELETE", _SCHEDULED + "/{message_id}", READERS, "schedules.cancel", "cancel what waits under an id"),
    ApiRoute("PUT", _SCHEDULED + "/{message_id}", READERS, "schedules.reschedule", "have it due at another time"),
    ApiRoute("GET", "/api/mayfly/redrives", READERS, "redrives.list", "redrives under way, and the last of each queue"),
    ApiRoute("GET", "/api/mayfly/redrives/{vhost}", READERS, "redrives.list", "those of a vhost"),
    ApiRoute("GET", _REDRIVE, READERS, "redrives.get", "how far the redrive of a queue has come"),
    ApiRoute("POST", _REDRIVE, READERS, "redrives.start", "begin: back to where messages died, or to a target"),
    ApiRoute("POST", _REDRIVE + "/preview", READERS, "redrives.preview", "what that would move, and the first of it"),
    ApiRoute("PUT", _REDRIVE, READERS, "redrives.change", "pause, resume, another rate"),
    ApiRoute("DELETE", _REDRIVE, READERS, "redrives.cancel", "cancel it"),
    ApiRoute("GET", "/api/mayfly/brakes", READERS, "brakes.list", "queues that are on brake for their dead letters"),
    ApiRoute("GET", "/api/mayfly/brakes/{vhost}", READERS, "brakes.list", "those of a vhost"),
    ApiRoute("POST", _BRAKE, READERS, "brakes.release", "have a queue on brake deliver again"),
    ApiRoute("GET", _DELAYED, READERS, "schedules.list_delayed", "what waits for a delayed exchange"),
    ApiRoute(
        "DELETE", _DELAYED + "/{message_id}", READERS, "schedules.cancel_delayed", "cancel what waits under an id"
    ),
    ApiRoute("PUT", _DELAYED + "/{message_id}", READERS, "schedules.reschedule_delayed", "have it due at another time"),
    ApiRoute("GET", _STREAM, READERS, "streams.get", "a stream's offsets, sizes, keys, what expires, consumers"),
    ApiRoute("GET", _STREAM + "/latest", READERS, "streams.latest", "the latest message of a routing key: ?key="),
    ApiRoute(
        "GET", _STREAM + "/journal", READERS, "streams.journal",
        "what is noted in a journal, the newest first: ?queue= of one queue, ?before= an offset, ?limit=",
    ),
    ApiRoute("DELETE", _STREAM + "/messages/{offset}", READERS, "streams.delete_message", "delete one message"),
    ApiRoute("DELETE", _STREAM + "/keys", READERS, "streams.purge_key", "delete all messages of a routing key: ?key="),
    ApiRoute("PUT", "/api/queues/{vhost}/{name}", READERS, "queues.put", "declare it"),
    ApiRoute(
        "DELETE", "/api/queues/{vhost}/{name}", READERS, "queues.delete", "delete it; ?if-empty=true ?if-unused=true"
    ),
    ApiRoute("GET", "/api/queues/{vhost}/{name}/bindings", READERS, "queues.bindings", "bindings that lead to it"),
    ApiRoute("DELETE", "/api/queues/{vhost}/{name}/contents", READERS, "queues.purge", "purge it"),
    ApiRoute("POST", "/api/queues/{vhost}/{name}/get", READERS, "queues.get_messages", "get messages from its head"),
    ApiRoute("POST", "/api/queues/{vhost}/{name}/actions", READERS, "queues.act", "actions: there are none any more"),
    *_lists("bindings", READERS, "bindings"),
    ApiRoute("GET", _BETWEEN, READERS, "bindings.between", "from an exchange to a queue (kind q) or an exchange (e)"),
    ApiRoute("POST", _BETWEEN, READERS, "bindings.bind", "make one"),
    ApiRoute("GET", _BETWEEN + "/{properties_key}", READERS, "bindings.get", "one of them"),
    ApiRoute("DELETE", _BETWEEN + "/{properties_key}", READERS, "bindings.unbind", "undo it"),
    ApiRoute("GET", "/api/aliveness-test/{vhost}", READERS, "aliveness.test", "declares a queue, publishes and gets"),
    # Policies.
    *_policies("policies", POLICYMAKERS, "policies"),
    *_policies("operator-policies", OPERATOR_POLICYMAKERS, "operator policies"),
    # Users, vhosts, permissions, limits.
    ApiRoute("GET", "/api/whoami", Who(MANAGEMENT_TAGS), "whoami.get", "who is logged in"),
    ApiRoute("GET", "/api/users", ADMINISTRATORS, "users.list", "all users"),
    ApiRoute("GET", "/api/users/without-permissions", ADMINISTRATORS, "users.without_permissions", "those without any"),
    ApiRoute("POST", "/api/users/bulk-delete", ADMINISTRATORS, "users.bulk_delete", "delete several"),
    ApiRoute("GET", "/api/users/{user}", ADMINISTRATORS, "users.get", "one user"),
    ApiRoute("PUT", "/api/users/{user}", ADMINISTRATORS, "users.put", "add or change it"),
    ApiRoute("DELETE", "/api/users/{user}", ADMINISTRATORS, "users.delete", "delete it; its connections are closed"),
    ApiRoute("GET", "/api/vhosts", Who(MANAGEMENT_TAGS), "vhosts.list", "vhosts that the user may see"),
    ApiRoute("GET", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.get", "one vhost"),
    ApiRoute("PUT", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.put", "add or change it"),
    ApiRoute("DELETE", "/api/vhosts/{vhost}", ADMINISTRATORS, "vhosts.delete", "delete it with all in it"),
    ApiRoute("GET", _PROTECTION, ADMINISTRATORS, "vhosts.protection", "whether it is protected from deletion"),
    ApiRoute("POST", _PROTECTION, ADMINISTRATORS, "vhosts.protect", "protect it"),
    ApiRoute("DELETE", _PROTECTION, ADMINISTRATORS, "vhosts.unprotect", "let it be deleted again"),
    ApiRoute("POST", "/api/vhosts/{vhost}/start/{node}", ADMINISTRATORS, "vhosts.start", "it runs on all nodes"),
    *_permissions("permissions", "permissions"),
    *_permissions("topic-permissions", "topic permissions"),
    ApiRoute(
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
