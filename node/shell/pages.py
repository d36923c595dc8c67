"""What operators see and do at one node, wired to its parts: all that the HTTP server needs."""

from collections.abc import Callable

from mayfly.node.http.server import PagePorts
from mayfly.node.operating.access import Access
from mayfly.node.operating.acting import Acting
from mayfly.node.operating.brakes import Brakes
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.data_copies import DataCopies
from mayfly.node.operating.dead_letters import DeadLetters
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.health_checks import HealthChecks
from mayfly.node.operating.import_and_export import Definitions
from mayfly.node.operating.management import Management, ToldByOthers
from mayfly.node.operating.message_totals import MessageTotals
from mayfly.node.operating.node_questions import NodeQuestions
from mayfly.node.operating.operator import AskedOfOthers, Operator
from mayfly.node.operating.outlook import Outlooks
from mayfly.node.operating.own_token import OwnToken
from mayfly.node.operating.parameters import Parameters
from mayfly.node.operating.queues import Queues
from mayfly.node.operating.redrives import Redrives
from mayfly.node.operating.resources import Resources
from mayfly.node.operating.schedules import Schedules
from mayfly.node.operating.shard_sources import ShardSources
from mayfly.node.operating.streams import Streams
from mayfly.node.operating.topology import Topology
from mayfly.node.operating.views.client_views import ClientViews
from mayfly.node.operating.views.rates import Rates
from mayfly.node.shell.node_view import NodeView, Shown


class Pages:
    """The ports of the pages, over the parts of a node."""

    def __init__(
        self,
        shown: Shown,
        cluster: ClusterControl,
        definitions: Definitions,
        own_token: OwnToken | None,
        pump: Callable[[], None],
    ) -> None:
        """`pump()` has the engine look at what was given to it."""
        settings, engine, broker, now_ms = shown.settings, shown.engine, shown.broker, shown.now_ms
        questions = NodeQuestions(engine, pump, now_ms)
        sources = ShardSources(engine, questions)
        freshness = Freshness(engine, cluster, sources, questions)
        groups = Groups(engine, sources, questions, now_ms)
        rates = Rates()
        queues = Queues(engine, sources, questions, rates, now_ms)
        self.sample = queues.sample
        messages = MessageTotals(questions, broker.traffic, rates, now_ms)
        dead_letters = DeadLetters(engine, sources, questions, now_ms, pump)
        views = ClientViews(engine, broker)
        clients = Clients(engine, views, sources, questions, rates, now_ms)
        outlooks = Outlooks(engine, sources, questions, now_ms)
        self.view: NodeView = NodeView(shown, freshness, groups, queues, outlooks)
        copies = DataCopies(engine, freshness, groups, questions, shown.control.copy_data)
        gathered = AskedOfOthers(freshness, groups, dead_letters, copies)
        operator = Operator(engine, shown.logins, cluster, gathered, now_ms, shown.control, own_token)
        told = ToldByOthers(clients, queues, groups, Resources(questions, self.view.resources), messages)
        management = Management(engine, cluster, shown.logins, self.view, told, settings.rabbitmq_version)
        access = Access(engine, cluster, shown.logins.threads)
        acting = Acting(broker, pump)
        topology = Topology(engine.catalog, acting)
        schedules = Schedules(engine, sources, questions, acting, now_ms)
        streams = Streams(engine, views, sources, questions, pump, now_ms)
        redrives = Redrives(engine, sources, questions, freshness, pump, now_ms)
        brakes = Brakes(engine, sources, questions, pump, now_ms)
        tls_files = (settings.peer_tls, settings.amqp_tls, settings.http_tls)
        checks = HealthChecks(engine, self.view, [files.certificate for files in tls_files if files is not None])
        parameters = Parameters(engine.catalog, management, access)
        self.ports: PagePorts = PagePorts(
            self.view, operator, management, access, definitions, topology, checks, parameters, schedules,
            outlooks, streams, redrives, brakes,
        )
