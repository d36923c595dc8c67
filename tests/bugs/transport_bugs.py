"""Bugs made on purpose between nodes."""

from tests.bugs.bug import Bug

DAMAGE = "tests/cluster/transport/test_damage.py::"
SECRET = "tests/cluster/transport/test_cluster_secret.py::"
STRANGERS = "tests/cluster/transport/test_strangers.py::"
CODEC = "tests/cluster/transport/test_codec.py::"

TRANSPORT_BUGS = [
    Bug(
        "takes the octets behind a part for the part's own",
        "cluster/transport/frame_octets.py",
        "if length > end - self._at:",
        "if length > len(self._data) - self._at:",
        CODEC + "test_a_part_that_is_longer_than_what_it_is_in_is_refused[42]",
        "DID NOT RAISE",
    ),
    Bug(
        "takes too much for a field that a newer release has added",
        "cluster/transport/frame_octets.py",
        "self._at += 8 if shape == 1 else 4",
        "self._at += 8",
        CODEC + "test_what_a_newer_release_may_add_is_passed_over",
        "Refused",
    ),
    Bug(
        "does not look at a frame's checksum",
        "cluster/transport/framing.py",
        "if self._checked and zlib.crc32(frame) != ",
        "if not frame and zlib.crc32(frame) != ",
        DAMAGE + "test_whatever_bit_of_a_stream_flips_no_frame_that_was_not_sent_comes_of_it",
        "assert",
    ),
    Bug(
        "uses frames that were damaged between nodes",
        "cluster/transport/framing.py",
        "if self._checked and zlib.crc32(frame) != ",
        "if not frame and zlib.crc32(frame) != ",
        DAMAGE + "test_nothing_that_was_damaged_between_nodes_is_used_and_all_comes_in_the_end[frames]",
        "assert",
    ),
    Bug(
        "waits for what a damaged length announces",
        "cluster/transport/framing.py",
        "if self._checked and zlib.crc32(data[at : at + 8]) != ",
        "if not data and zlib.crc32(data[at : at + 8]) != ",
        DAMAGE + "test_a_length_that_is_wrong_is_not_waited_for",
        "DID NOT RAISE",
    ),
    Bug(
        "uses damaged dead letters",
        "cluster/transport/framing.py",
        "if len(data) < LENGTH.size or LENGTH.unpack_from(data)[0] != zlib.crc32(frame):",
        "if len(data) < LENGTH.size:",
        DAMAGE + "test_no_bit_of_a_frame_on_the_exchange_may_flip",
        "DID NOT RAISE",
    ),
    Bug(
        "gives a place to who does not know the secret",
        "cluster/transport/authentication.py",
        "if self._known.demanded and self.proven(context) is None:",
        "if self._known.demanded and not self._known:",
        SECRET + "test_a_place_is_given_to_who_knows_the_secret_alone",
        "DID NOT RAISE",
    ),
    Bug(
        "takes the ticket of a frame stream for the secret",
        "cluster/transport/cluster_secret.py",
        'return self._of_ticket(b"frames", ticket, node_id)',
        "return ticket",
        SECRET + "test_at_the_port_for_frames_the_ticket_alone_is_not_enough",
        "what everybody on the way can read was enough",
    ),
    Bug(
        "believes a listener that does not show that it knows the secret",
        "cluster/transport/proving.py",
        "proven = known.shown_by(proofs[0], whole) if len(proofs) == 1 else None",
        'proven = ProvenSecret(b"")',
        SECRET + "test_who_only_repeats_what_it_hears_has_shown_nothing",
        "DID NOT RAISE",
    ),
    Bug(
        "lets a flood crowd members out",
        "cluster/transport/strangers.py",
        "return next(iter(self._of[crowd]))",
        "return next(iter(self._origins))",
        STRANGERS + "test_a_flood_from_some_addresses_is_in_its_own_way_alone",
        "a member was crowded out",
    ),
    Bug(
        "reads whatever a stranger sends",
        "cluster/transport/peer_port.py",
        "if self._received_bytes > limits.MAX_STRANGER_BYTES and self._port.is_stranger(self):",
        "if self._received_bytes < 0:",
        STRANGERS + "test_large_questions_for_a_place_are_cut_off_and_not_read",
        "DID NOT RAISE",
    ),
    Bug(
        "takes the last piece of a large notice for all of it",
        "cluster/host/divided_notices.py",
        'b"".join(self._pieces)))',
        "self._pieces[-1]))",
        "tests/cluster/host/test_divided_notices.py::test_notices_arrive_as_they_were_sent",
        "assert received ==",
    ),
    Bug(
        "sends a large notice as one frame",
        "cluster/transport/send_queue.py",
        "        if self.divides_notices:\n",
        "        if False:\n",
        "tests/cluster/transport/test_large_notices.py::test_no_frame_is_much_larger_than_a_frame_may_be",
        "assert max(stream.sizes + apart)",
    ),
]
