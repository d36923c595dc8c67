"""A profile's stacks are counted for the stage of a message's way to which they belong."""

import pytest

from bench import stages
from bench.stages import count_stages, hottest, stage_of

LOOP = "MainThread;run (uvloop/__init__.py:92);Drive._pump (node/drive.py:123)"


@pytest.mark.parametrize(
    "inner, stage",
    [
        ("ClientProtocol.data_received (node/listener.py:160)", stages.READ),
        ("ClientConnection.receive (node/broker/connection.py:80);Connection.receive (node/amqp/connection.py:9)",
         stages.PARSE),
        ("Publishing.publish (node/broker/publishing.py:80)", stages.ROUTE),
        ("Group.collect (cluster/group.py:400);Applying._run (cluster/applying.py:112)", stages.APPLY),
        ("Group.collect (cluster/group.py:400)", stages.REPLICATE),
        ("encode_frame (cluster/transport/codec.py:20)", stages.REPLICATE),
        ("Consumer.deliver (node/broker/consumers.py:77)", stages.DELIVER),
        ("Confirms.flush (node/broker/confirms.py:77)", stages.CONFIRM),
        ("ClientProtocol.flush (node/listener.py:240);uv__try_write (stream.c:9)", stages.WRITE),
        ("Engine.pump (node/engine.py:9)", stages.DRIVE),
        ("Applying._run (cluster/applying.py:112);CPyDef_shard___publish___apply_publishes (s.c:1);malloc (libc.so.6)",
         stages.APPLY),
    ],
)
def test_the_innermost_frame_that_is_known_decides(inner: str, stage: str) -> None:
    assert stage_of(f"{LOOP};{inner}") == stage
    assert stage_of(f"{LOOP};{inner};memcpy (libc.so.6)") == stage, "what a stage calls counts with it"


def test_a_write_to_the_disk_is_the_log_and_what_nobody_knows_is_other() -> None:
    assert stage_of("log-writer;LogWriter._run (node/log_writer.py:44);fdatasync (libc.so.6)") == stages.LOG
    assert stage_of("Thread-7;select (selectors.py:1)") == stages.OTHER


def test_the_loop_itself_and_the_thread_of_grpc_have_their_stages() -> None:
    assert stage_of("MainThread;command (node/command_line/node_command.py:71)") == stages.READ
    assert stage_of("thread (7): Thread-1 (_poll_wrapper);Thread.run (threading.py:982)") == stages.REPLICATE


def test_samples_are_added_up() -> None:
    lines = [
        f"{LOOP};Group.step (cluster/group.py:9) 3", f"{LOOP};Group.step (cluster/group.py:12) 4\n",
        f"{LOOP};Engine.pump (node/engine.py:9);time (libc.so.6) 2",
    ]
    assert count_stages(lines) == {stages.REPLICATE: 7, stages.DRIVE: 2}
    assert hottest(lines, 1) == [(stages.REPLICATE, "Group.step (cluster/group.py)", 7)]


def test_every_stage_is_in_the_table() -> None:
    assert {stage for stage, _ in stages._RULES} | {stages.OTHER} == set(stages.STAGES)
