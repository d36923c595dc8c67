"""A profile's stacks are counted for the stage of a message's way to which they belong."""

import pytest

from bench import stages
from bench.compiled_stacks import collapsed
from bench.stages import count_stages, hottest, stage_of

LOOP = "MainThread;run (uvloop/__init__.py:92);Drive._pump (node/shell/drive.py:123)"


@pytest.mark.parametrize(
    "inner, stage",
    [
        ("ClientProtocol.data_received (node/shell/listener.py:160)", stages.READ),
        ("ClientConnection.receive (node/broker/connection.py:80);Connection.receive (node/amqp/connection.py:9)",
         stages.PARSE),
        ("Publishing.publish (node/broker/publishing.py:80)", stages.ROUTE),
        ("Group.collect (cluster/group/group.py:400);Applying._run (cluster/group/applying.py:112)", stages.APPLY),
        ("Group.collect (cluster/group/group.py:400)", stages.REPLICATE),
        ("encode_frame (cluster/transport/codec.py:20)", stages.REPLICATE),
        ("Consumer.deliver (node/broker/consumers.py:77)", stages.DELIVER),
        ("Confirms.flush (node/broker/confirms.py:77)", stages.CONFIRM),
        ("ClientProtocol.flush (node/shell/listener.py:240);uv__try_write (stream.c)", stages.WRITE),
        ("apply_settle (node/shard/settle.py)", stages.ACKNOWLEDGE),
        ("Channel.submit_settlements (node/broker/channel.py)", stages.ACKNOWLEDGE),
        ("hand_over (node/shard/delivery.py)", stages.DELIVER),
        ("Channel.publish (node/broker/channel.py);encode_publish (node/shard/commands.py)", stages.ROUTE),
        ("Engine.pump (node/engine/engine.py:9)", stages.DRIVE),
        ("Applying._run (cluster/group/applying.py:112);apply_publishes (node/shard/publish.py)", stages.APPLY),
    ],
)
def test_the_innermost_frame_that_is_known_decides(inner: str, stage: str) -> None:
    assert stage_of(f"{LOOP};{inner}") == stage
    assert stage_of(f"{LOOP};{inner};memcpy (libc.so.6)") == stage, "what a stage calls counts with it"


def test_a_write_to_the_disk_is_the_log_and_what_nobody_knows_is_other() -> None:
    assert stage_of("log-writer;LogWriter._run (node/shell/log_writer.py:44);fdatasync (libc.so.6)") == stages.LOG
    assert stage_of("Thread-7;select (selectors.py:1)") == stages.OTHER


def test_the_loop_itself_and_the_thread_of_grpc_have_their_stages() -> None:
    assert stage_of("MainThread;command (node/command_line/node_command.py:71)") == stages.READ
    assert stage_of("thread (7): Thread-1 (_poll_wrapper);Thread.run (threading.py:982)") == stages.REPLICATE


def test_of_c_alone_the_event_loop_says_what_it_does() -> None:
    loop = "main (python3);uv_run (loop.so);uv__stream_io (loop.so)"
    assert stage_of(f"{loop};read (libc.so.6);tcp_recvmsg ([kernel.kallsyms])") == stages.READ
    write = "__pyx_f_6uvloop_4loop_8UVStream__try_write (loop.so);__GI___libc_write (libc.so.6)"
    assert stage_of(f"{loop};_PyEval_EvalFrameDefault (libpython3.so);{write}") == stages.WRITE
    assert stage_of(f"{loop};SendQueue._write (cluster/transport/send_queue.py);{write}") == stages.REPLICATE
    assert stage_of("start_thread (libc.so.6);mdb_txn_commit (lmdb.so);pwrite (libc.so.6)") == stages.LOG


PERF = """python  8708/8709
\tffffffff8158934a tcp_recvmsg ([kernel.kallsyms])
\t          10fbfa CPyDef_mayfly___node___amqp___frames___FrameReader____walk (/lib/mayfly_amqp__mypyc.so)
\t           72def CPyDef_mayfly___cluster___group___group___Group___propose (/lib/mayfly_group__mypyc.so)
\t           72def a;b (/lib/odd name.so)

python  8708/8708
\t           12cc40 uv__run_idle (/lib/loop.so)

python  8708/8708
\t           12cc41 uv__run_idle (/lib/loop.so)
"""


def test_what_perf_prints_becomes_stacks_with_the_names_of_the_sources() -> None:
    assert collapsed(PERF) == [
        "a:b (odd name.so);Group.propose (cluster/group/group.py);FrameReader._walk (node/amqp/frames.py);"
        "tcp_recvmsg ([kernel.kallsyms]) 1",
        "uv__run_idle (loop.so) 2",
    ]


def test_samples_are_added_up() -> None:
    lines = [
        f"{LOOP};Group.step (cluster/group/group.py:9) 3", f"{LOOP};Group.step (cluster/group/group.py:12) 4\n",
        f"{LOOP};Engine.pump (node/engine/engine.py:9);time (libc.so.6) 2",
    ]
    assert count_stages(lines) == {stages.REPLICATE: 7, stages.DRIVE: 2}
    assert hottest(lines, 1) == [(stages.REPLICATE, "Group.step (cluster/group/group.py)", 7)]


def test_every_stage_is_in_the_table() -> None:
    assert {stage for stage, _ in stages._RULES} | {stages.OTHER} == set(stages.STAGES)
