"""The contract of every connector as one class of tests: subclass it and give it a ``connector`` fixture."""

from __future__ import annotations

import errno
import hashlib
import io
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kubexm_exec.connectors.base import Command, Compares, Connector, OnOutput, Readable, Sink
from kubexm_exec.control import Cancel, Deadline
from kubexm_exec.model.command import CommandResult
from kubexm_exec.model.errors import CommandCancelled, CommandTimedOut

SOON = 60.0
"""Far more than any command here needs: it only keeps a broken connector from hanging the suite."""

ODD_TEXTS = [
    "",
    " ",
    "two words",
    "a'b",
    'a"b',
    "$HOME `id` $(id) ${x}",
    "*?[a]~",
    "; rm -rf / & | > <",
    "back\\slash\\n",
    "new\nline\n",
    "tab\tcr\rbell\a",
    "-n",
    "--",
    "%s%n%d",
    "é ü 漢字 🎉",
    "\udc80\udcff",
    "!history",
    "#comment",
    "x" * 5000,
]


class Pieces:
    """So many bytes, which exist only piece by piece; it may break instead of ending."""

    def __init__(self, size: int, *, breaks: bool = False) -> None:
        self.digest = hashlib.sha256()
        self._left = size
        self._breaks = breaks

    def read(self, size: int, /) -> bytes:
        if not self._left and self._breaks:
            raise OSError(5, "disk on fire")
        piece = (self._left.to_bytes(8, "big") * (size // 8 + 1))[: min(size, self._left)]
        self._left -= len(piece)
        self.digest.update(piece)
        return piece


class ConnectorContract:
    """What steps and the runner rely on, whatever the transport."""

    @pytest.fixture
    def connector(self) -> Iterator[Connector]:
        raise NotImplementedError("a subclass gives an open connector")

    @pytest.fixture
    def folder(self, connector: Connector) -> Iterator[str]:
        """An empty folder on the host."""
        made = self.run(connector, "mktemp", "-d", "/tmp/kx-contract.XXXXXX")
        path = made.out.rstrip("\n")
        assert path.startswith("/tmp/kx-contract.")
        yield path
        self.run(connector, "rm", "-rf", path)

    @staticmethod
    def run(
        connector: Connector,
        *argv: str,
        shell: str = "",
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        stdin: bytes | Readable | None = None,
        max_output: int = 1 << 20,
        on_output: OnOutput | None = None,
        timeout: float = SOON,
        cancel: Cancel | None = None,
        pty: bool = False,
    ) -> CommandResult:
        command = Command(argv=argv, shell=shell, cwd=cwd, env=env or {}, stdin=stdin, max_output=max_output, pty=pty)
        return connector.run(command, deadline=Deadline.after(timeout), cancel=cancel or Cancel(), on_output=on_output)

    @staticmethod
    def put(
        connector: Connector,
        source: bytes | io.BytesIO,
        path: str,
        mode: int | None = None,
        owner: str | None = None,
        group: str | None = None,
    ) -> None:
        connector.put(source, path, mode=mode, owner=owner, group=group, deadline=Deadline.after(SOON), cancel=Cancel())

    @staticmethod
    def get(connector: Connector, path: str, limit: int | None = None) -> bytes:
        return connector.get(path, deadline=Deadline.after(SOON), cancel=Cancel(), limit=limit)

    def mode(self, connector: Connector, path: str) -> str:
        return self.run(connector, "stat", "-c", "%a", path).out.strip()

    def names(self, connector: Connector, folder: str) -> list[str]:
        return sorted(self.run(connector, "ls", "-A", folder).out.split("\n")[:-1])

    # opening and closing

    def test_opening_and_closing_twice_is_harmless(self, connector: Connector) -> None:
        connector.open(Deadline.after(SOON))
        connector.open(Deadline.after(SOON))
        assert self.run(connector, "echo", "open").out == "open\n"
        connector.close()
        connector.close()
        connector.open(Deadline.after(SOON))
        assert self.run(connector, "echo", "again").out == "again\n"

    # commands

    @pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
    def test_arguments_arrive_byte_for_byte(self, connector: Connector, text: str) -> None:
        result = self.run(connector, "printf", "%s|", text, "end")
        assert result.stdout == (text + "|end|").encode("utf-8", "surrogateescape")

    def test_output_that_is_not_text_arrives_byte_for_byte(self, connector: Connector) -> None:
        data = bytes(range(256)) * 300
        result = self.run(connector, "cat", stdin=data)
        assert result.stdout == data
        assert result.out  # as text: replaced, never raised

    def test_standard_output_and_error_are_kept_apart(self, connector: Connector) -> None:
        result = self.run(connector, shell="echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")

    @pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
    def test_exit_codes_are_handed_on(self, connector: Connector, code: int) -> None:
        assert self.run(connector, "sh", "-c", f"exit {code}").exit_code == code

    @pytest.mark.parametrize("number", [9, 15])
    def test_a_signal_is_a_negative_exit_code(self, connector: Connector, number: int) -> None:
        assert self.run(connector, "sh", "-c", f"kill -{number} $$").exit_code == -number

    def test_a_program_that_does_not_exist_is_exit_code_127(self, connector: Connector) -> None:
        result = self.run(connector, "kx-no-such-program", "x")
        assert result.exit_code == 127
        assert "kx-no-such-program" in result.err

    def test_a_file_that_is_not_executable_is_exit_code_126(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"text", f"{folder}/plain")
        result = self.run(connector, f"{folder}/plain")
        assert result.exit_code == 126
        assert f"{folder}/plain" in result.err

    def test_a_folder_that_does_not_exist_is_exit_code_126_and_named(self, connector: Connector, folder: str) -> None:
        result = self.run(connector, "true", cwd=f"{folder}/missing")
        assert result.exit_code == 126
        assert f"{folder}/missing" in result.err

    def test_a_command_runs_in_the_folder_it_was_given(self, connector: Connector, folder: str) -> None:
        odd = f"{folder}/it's a $folder"
        self.run(connector, "mkdir", odd)
        assert self.run(connector, "pwd", cwd=odd).out == odd + "\n"

    def test_variables_arrive_as_they_are(self, connector: Connector) -> None:
        value = 'a\'b "c" $HOME\n`id` é'
        assert self.run(connector, "printenv", "KX_ODD", env={"KX_ODD": value}).out == value + "\n"

    def test_a_command_has_the_usual_environment(self, connector: Connector) -> None:
        names = self.run(connector, shell="env").out
        assert "PATH=" in names
        assert "HOME=" in names

    def test_a_given_path_decides_which_program_runs(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"#!/bin/sh\necho mine\n", f"{folder}/kx-tool", 0o755)
        path = f"{folder}:/usr/bin:/bin"
        assert self.run(connector, "kx-tool", env={"PATH": path}).out == "mine\n"

    def test_without_input_a_command_reads_nothing(self, connector: Connector) -> None:
        assert self.run(connector, "cat").stdout == b""

    def test_empty_input_is_an_end_of_file(self, connector: Connector) -> None:
        assert self.run(connector, "cat", stdin=b"").stdout == b""

    def test_input_larger_than_any_buffer_is_read_to_its_end(self, connector: Connector) -> None:
        data = b"0123456789abcdef" * 200_000
        result = self.run(connector, "sha256sum", stdin=data)
        assert result.out.split()[0] == hashlib.sha256(data).hexdigest()

    def test_input_that_is_read_piece_by_piece_arrives_whole_and_never_is_in_memory(self, connector: Connector) -> None:
        source = Pieces(40 << 20)
        tracemalloc.start()
        try:
            result = self.run(connector, "sha256sum", stdin=source)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert result.out.split()[0] == source.digest.hexdigest()
        assert peak < 8 << 20

    def test_a_command_may_answer_while_its_input_is_still_sent(self, connector: Connector) -> None:
        source = Pieces(12 << 20)
        heard = hashlib.sha256()
        result = self.run(connector, "cat", stdin=source, max_output=10, on_output=lambda _, data: heard.update(data))
        assert (result.exit_code, heard.digest()) == (0, source.digest.digest())

    def test_a_command_may_end_before_it_has_read_a_stream(self, connector: Connector) -> None:
        result = self.run(connector, "head", "-c", "3", stdin=Pieces(30 << 20))
        assert (result.exit_code, len(result.stdout)) == (0, 3)

    def test_input_that_breaks_ends_the_command_and_is_raised(self, connector: Connector, folder: str) -> None:
        script = f"echo $$ > {folder}/pid; cat > /dev/null; touch {folder}/reached"
        with pytest.raises(OSError, match="disk on fire"):
            self.run(connector, shell=script, stdin=Pieces(1 << 20, breaks=True))
        assert self.eventually_gone(connector, self.run(connector, "cat", f"{folder}/pid").out)
        assert self.names(connector, folder) == ["pid"]

    def test_a_command_may_leave_its_input_unread(self, connector: Connector) -> None:
        result = self.run(connector, "head", "-c", "3", stdin=b"abc" * 1_000_000)
        assert (result.exit_code, result.stdout) == (0, b"abc")

    def test_only_the_last_bytes_of_each_stream_are_kept(self, connector: Connector) -> None:
        result = self.run(connector, shell="seq 1 100000; seq 1 10 >&2", max_output=12)
        assert result.stdout == b"99999\n100000\n"[-12:]
        assert result.stderr == b"6\n7\n8\n9\n10\n"[-12:] or result.stderr.endswith(b"9\n10\n")
        assert result.dropped > 500_000

    def test_fifty_megabytes_of_output_are_streamed_in_bounded_memory(self, connector: Connector) -> None:
        size = 50 << 20
        seen = 0

        def count(stream: str, data: bytes) -> None:
            nonlocal seen
            assert stream == "stdout"
            seen += len(data)

        tracemalloc.start()
        try:
            result = self.run(connector, shell=f"head -c {size} /dev/zero", max_output=1000, on_output=count)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (result.exit_code, seen, len(result.stdout)) == (0, size, 1000)
        assert result.dropped == size - 1000
        assert peak < 8 << 20

    def test_output_is_handed_on_while_the_command_runs(self, connector: Connector, folder: str) -> None:
        got: list[tuple[str, bytes]] = []

        def answer(stream: str, data: bytes) -> None:
            got.append((stream, data))
            self.put(connector, b"", f"{folder}/answered")

        # It ends only if its first line was seen before it ended.
        script = f"echo first; while ! [ -e {folder}/answered ]; do sleep 0.01; done; echo second >&2"
        result = self.run(connector, shell=script, on_output=answer)
        assert result.exit_code == 0
        assert got == [("stdout", b"first\n"), ("stderr", b"second\n")]

    def test_an_error_of_the_listener_ends_the_command_and_is_raised(self, connector: Connector) -> None:
        def fail(stream: str, data: bytes) -> None:
            raise LookupError("listener")

        with pytest.raises(LookupError, match="listener"):
            self.run(connector, shell="echo x; sleep 60", on_output=fail)

    def test_a_background_child_that_keeps_the_pipes_is_not_waited_for(self, connector: Connector) -> None:
        before = time.monotonic()
        result = self.run(connector, shell="echo out; sleep 30 & echo $!")
        took = time.monotonic() - before
        child = result.out.split()[1]
        try:
            assert result.out.startswith("out\n")
            assert took < 25
            assert self.run(connector, "kill", "-0", child).exit_code == 0, "it must live on"
        finally:
            self.run(connector, "kill", child)

    # terminals

    def test_a_command_can_have_a_terminal_on_which_nobody_types(self, connector: Connector) -> None:
        script = "test -t 0 && test -t 1 && test -t 2 && echo on $(tty | cut -c1-5); cat; echo err >&2; exit 3"
        result = self.run(connector, shell=script, pty=True)
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"on /dev/\nerr\n", b"")

    def test_what_comes_from_a_terminal_has_plain_line_ends_and_is_not_changed_otherwise(
        self, connector: Connector
    ) -> None:
        result = self.run(connector, shell=r"printf 'a\nb\r\n\tc\033[0m \342\202\254\377'", pty=True)
        assert result.stdout == b"a\nb\n\tc\x1b[0m \xe2\x82\xac\xff"

    @pytest.mark.parametrize(("script", "code"), [("kill -9 $$", -9), ("exit 137", 137), ("kx-no-such-program", 127)])
    def test_a_command_in_a_terminal_ends_as_any_other(self, connector: Connector, script: str, code: int) -> None:
        assert self.run(connector, "sh", "-c", script, pty=True).exit_code == code

    def test_a_megabyte_from_a_terminal_arrives_whole(self, connector: Connector) -> None:
        result = self.run(connector, "seq", "1", "150000", pty=True)
        assert result.stdout == b"".join(b"%d\n" % number for number in range(1, 150_001))

    def test_a_timeout_kills_a_command_in_a_terminal_and_its_children(self, connector: Connector, folder: str) -> None:
        with pytest.raises(CommandTimedOut):
            self.run(connector, shell=f"sleep 64 & echo $! $$ > {folder}/pids; wait", pty=True, timeout=8.0)
        pids = self.run(connector, "cat", f"{folder}/pids").out
        assert len(pids.split()) == 2
        assert self.eventually_gone(connector, pids)

    def test_a_command_has_either_a_terminal_or_input(self, connector: Connector) -> None:
        with pytest.raises(ValueError, match="either a terminal or input"):
            self.run(connector, "cat", stdin=b"x", pty=True)

    # timeouts and cancelling

    @staticmethod
    def gone(run: Callable[..., CommandResult], connector: Connector, pids: str) -> bool:
        """Whether none of these processes lives (a zombie that nobody reaps is dead too)."""
        states = run(connector, "sh", "-c", 'for p; do cat "/proc/$p/stat" 2>/dev/null; done; :', "kx", *pids.split())
        return all(line.rpartition(")")[2].split()[0] in "ZX" for line in states.out.splitlines())

    def eventually_gone(self, connector: Connector, pids: str) -> bool:
        give_up = time.monotonic() + 10
        while not self.gone(self.run, connector, pids):
            if time.monotonic() > give_up:
                return False
        return True

    def test_a_timeout_kills_the_command_and_its_grandchildren(self, connector: Connector, folder: str) -> None:
        script = f"(sleep 61 & echo $! > {folder}/pids; wait) & echo $! >> {folder}/more; sleep 62"
        with pytest.raises(CommandTimedOut):
            self.run(connector, shell=script, timeout=6.0)
        pids = self.run(connector, shell=f"cat {folder}/pids {folder}/more").out
        assert len(pids.split()) == 2
        assert self.eventually_gone(connector, pids)

    def test_a_command_that_ignores_the_polite_signal_is_killed(self, connector: Connector, folder: str) -> None:
        script = f"trap '' TERM; echo $$ > {folder}/pid; while :; do sleep 0.1; done"
        with pytest.raises(CommandTimedOut):
            self.run(connector, shell=script, timeout=6.0)
        assert self.eventually_gone(connector, self.run(connector, "cat", f"{folder}/pid").out)

    def test_a_command_is_not_even_started_after_its_deadline(self, connector: Connector, folder: str) -> None:
        with pytest.raises(CommandTimedOut):
            self.run(connector, "touch", f"{folder}/made", timeout=0.0)
        assert self.names(connector, folder) == []

    def test_cancel_from_another_thread_kills_the_command(self, connector: Connector, folder: str) -> None:
        cancel = Cancel()
        script = f"sleep 63 & echo $! $$ > {folder}/pids; echo up; wait"

        def stop(stream: str, data: bytes) -> None:
            threading.Thread(target=cancel.set).start()

        with pytest.raises(CommandCancelled):
            self.run(connector, shell=script, cancel=cancel, on_output=stop)
        assert self.eventually_gone(connector, self.run(connector, "cat", f"{folder}/pids").out)

    def test_a_cancelled_run_starts_nothing(self, connector: Connector, folder: str) -> None:
        cancel = Cancel()
        cancel.set()
        with pytest.raises(CommandCancelled):
            self.run(connector, "touch", f"{folder}/made", cancel=cancel)
        assert self.names(connector, folder) == []

    def test_many_commands_at_once_do_not_mix(self, connector: Connector) -> None:
        def one(number: int) -> bool:
            text = f"{number} " * 20_000
            result = self.run(connector, "cat", stdin=text.encode())
            return result.out == text

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(one, range(40)))

    # files

    @pytest.mark.parametrize("name", [text for text in ODD_TEXTS if 0 < len(text) < 200], ids=range(len(ODD_TEXTS) - 2))
    def test_a_file_of_any_name_comes_back_as_it_was_written(
        self, connector: Connector, folder: str, name: str
    ) -> None:
        path = f"{folder}/{name.replace('/', '_')}"
        self.put(connector, b"content of \x00\xff" + name.encode("utf-8", "surrogateescape"), path)
        assert self.get(connector, path) == b"content of \x00\xff" + name.encode("utf-8", "surrogateescape")

    def test_a_new_file_is_0644_and_leaves_nothing_else(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"x", f"{folder}/new")
        assert self.mode(connector, f"{folder}/new") == "644"
        assert self.names(connector, folder) == ["new"]

    @pytest.mark.parametrize("mode", [0o600, 0o755, 0o4711, 0o1777, 0o000])
    def test_a_file_gets_the_mode_it_was_given(self, connector: Connector, folder: str, mode: int) -> None:
        self.put(connector, b"x", f"{folder}/new", mode)
        assert int(self.mode(connector, f"{folder}/new"), 8) == mode

    def test_a_file_that_is_replaced_keeps_its_mode_and_owner(self, connector: Connector, folder: str) -> None:
        path = f"{folder}/old"
        self.put(connector, b"one", path, 0o640)
        owner = self.run(connector, "stat", "-c", "%u:%g", path).out
        self.put(connector, b"two", path)
        assert self.get(connector, path) == b"two"
        assert self.mode(connector, path) == "640"
        assert self.run(connector, "stat", "-c", "%u:%g", path).out == owner

    def test_a_file_that_is_replaced_can_get_another_mode(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"one", f"{folder}/old", 0o640)
        self.put(connector, b"two", f"{folder}/old", 0o600)
        assert self.mode(connector, f"{folder}/old") == "600"

    @pytest.mark.parametrize("made", [bytes, io.BytesIO])
    @pytest.mark.parametrize("size", [4, 200_000])
    def test_a_file_is_only_replaced_if_it_is_what_was_seen(
        self, connector: Connector, folder: str, made: Callable[[bytes], bytes | io.BytesIO], size: int
    ) -> None:
        if not isinstance(connector, Compares):
            pytest.skip("it does not compare")
        path = f"{folder}/file"
        replace: Callable[..., None] = connector.put

        def put(letter: bytes, seen: str) -> None:
            replace(made(letter * size), path, seen=seen, deadline=Deadline.after(SOON), cancel=Cancel())

        one, two = (hashlib.sha256(letter * size).hexdigest() for letter in (b"1", b"2"))
        put(b"1", "")
        put(b"2", one)
        for seen in ("", one):
            with pytest.raises(OSError, match="it is not what was seen") as caught:
                put(b"3", seen)
            assert caught.value.errno == errno.ESTALE
        assert self.get(connector, path) == b"2" * size
        assert self.names(connector, folder) == ["file"]
        self.run(connector, "ln", "-sf", "other", path)
        for seen in ("", two):
            with pytest.raises(OSError, match="it is not what was seen"):
                put(b"3", seen)
        assert self.names(connector, folder) == ["file"]

    def test_whoever_has_the_old_file_open_keeps_the_old_content(self, connector: Connector, folder: str) -> None:
        path = f"{folder}/file"
        self.put(connector, b"old", path)
        inode = self.run(connector, "stat", "-c", "%i", path).out
        self.put(connector, b"new", path)
        assert self.run(connector, "stat", "-c", "%i", path).out != inode

    def test_a_link_is_replaced_and_its_target_left_alone(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"target", f"{folder}/target")
        self.run(connector, "ln", "-s", "target", f"{folder}/link")
        self.put(connector, b"new", f"{folder}/link")
        assert self.get(connector, f"{folder}/target") == b"target"
        assert self.get(connector, f"{folder}/link") == b"new"

    def test_the_owner_can_be_given_by_name_and_by_number(self, connector: Connector, folder: str) -> None:
        user, uid, gid = self.run(connector, shell="id -un; id -u; id -g").out.split()
        self.put(connector, b"x", f"{folder}/a", owner=user)
        self.put(connector, b"x", f"{folder}/b", owner=uid, group=gid)
        assert self.names(connector, folder) == ["a", "b"]

    def test_an_owner_that_does_not_exist_is_an_error_that_leaves_nothing(
        self, connector: Connector, folder: str
    ) -> None:
        with pytest.raises(OSError, match="kx-nobody"):
            self.put(connector, b"x", f"{folder}/a", owner="kx-nobody")
        assert self.names(connector, folder) == []

    def test_a_stream_is_written_as_a_whole(self, connector: Connector, folder: str) -> None:
        data = bytes(range(256)) * 20_000
        self.put(connector, io.BytesIO(data), f"{folder}/big")
        assert self.run(connector, "sha256sum", f"{folder}/big").out.split()[0] == hashlib.sha256(data).hexdigest()

    def test_a_source_that_breaks_leaves_the_old_file_and_nothing_else(self, connector: Connector, folder: str) -> None:
        class Broken(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                raise OSError(5, "disk on fire")

        self.put(connector, b"old", f"{folder}/file")
        with pytest.raises(OSError, match="disk on fire"):
            self.put(connector, Broken(), f"{folder}/file")
        assert self.get(connector, f"{folder}/file") == b"old"
        assert self.names(connector, folder) == ["file"]

    def test_a_cancelled_write_leaves_the_old_file_and_nothing_else(self, connector: Connector, folder: str) -> None:
        cancel = Cancel()

        class Cancelling(io.BytesIO):
            def read(self, size: int | None = -1, /) -> bytes:
                cancel.set()
                return b"half"

        self.put(connector, b"old", f"{folder}/file")
        with pytest.raises(CommandCancelled):
            connector.put(Cancelling(), f"{folder}/file", deadline=Deadline.after(SOON), cancel=cancel)
        assert self.get(connector, f"{folder}/file") == b"old"
        assert self.names(connector, folder) == ["file"]

    def test_writing_into_a_folder_that_does_not_exist_is_an_error(self, connector: Connector, folder: str) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            self.put(connector, b"x", f"{folder}/missing/file")
        assert caught.value.filename == f"{folder}/missing/file"

    def test_writing_over_a_folder_is_an_error_that_leaves_nothing(self, connector: Connector, folder: str) -> None:
        self.run(connector, "mkdir", f"{folder}/sub")
        with pytest.raises(OSError, match="sub") as caught:
            self.put(connector, b"x", f"{folder}/sub")
        assert isinstance(caught.value, IsADirectoryError)
        assert self.names(connector, folder) == ["sub"]

    def test_bytes_larger_than_any_buffer_are_written_as_a_whole(self, connector: Connector, folder: str) -> None:
        data = bytes(range(256)) * 20_000
        self.put(connector, data, f"{folder}/big", mode=0o640)
        assert self.run(connector, "sha256sum", f"{folder}/big").out.split()[0] == hashlib.sha256(data).hexdigest()
        assert self.mode(connector, f"{folder}/big") == "640"
        assert self.names(connector, folder) == ["big"]

    def stream(self, connector: Connector, path: str, sink: Sink, cancel: Cancel | None = None) -> None:
        connector.stream(path, sink, deadline=Deadline.after(SOON), cancel=cancel or Cancel())

    @pytest.mark.parametrize("size", [0, 1, 70_000, 3 << 20])
    def test_a_file_is_handed_on_piece_by_piece(self, connector: Connector, folder: str, size: int) -> None:
        data = (b"\x00\xff\n'" * (size // 4 + 1))[:size]
        self.put(connector, data, f"{folder}/file")
        got: list[bytes] = []
        self.stream(connector, f"{folder}/file", got.append)
        assert b"".join(got) == data

    def test_a_large_file_is_handed_on_in_bounded_memory(self, connector: Connector, folder: str) -> None:
        size, seen = 40 << 20, 0

        def count(data: bytes) -> None:
            nonlocal seen
            seen += len(data)

        self.run(connector, shell=f"head -c {size} /dev/zero > {folder}/big")
        tracemalloc.start()
        try:
            self.stream(connector, f"{folder}/big", count)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert seen == size
        assert peak < 8 << 20

    def test_an_error_of_whoever_takes_the_pieces_ends_it_and_is_raised(
        self, connector: Connector, folder: str
    ) -> None:
        def full(data: bytes) -> None:
            raise OSError(28, "here it is full")

        self.run(connector, shell=f"head -c {20 << 20} /dev/zero > {folder}/big")
        with pytest.raises(OSError, match="here it is full") as caught:
            self.stream(connector, f"{folder}/big", full)
        assert caught.value.filename is None
        assert self.run(connector, "echo", "well").out == "well\n"

    def test_cancel_ends_the_handing_on(self, connector: Connector, folder: str) -> None:
        cancel = Cancel()
        self.run(connector, shell=f"head -c {40 << 20} /dev/zero > {folder}/big")
        with pytest.raises(CommandCancelled):
            self.stream(connector, f"{folder}/big", lambda data: cancel.set(), cancel)

    @pytest.mark.parametrize(
        ("name", "error"), [("missing", FileNotFoundError), ("sub", IsADirectoryError), ("pipe", OSError)]
    )
    def test_what_is_no_file_is_not_handed_on(
        self, connector: Connector, folder: str, name: str, error: type[OSError]
    ) -> None:
        self.run(connector, shell=f"mkdir {folder}/sub; mkfifo {folder}/pipe")
        got: list[bytes] = []
        with pytest.raises(error) as caught:
            self.stream(connector, f"{folder}/{name}", got.append)
        assert (caught.value.filename, got) == (f"{folder}/{name}", [])

    def test_reading_stops_at_the_limit(self, connector: Connector, folder: str) -> None:
        self.put(connector, b"0123456789", f"{folder}/file")
        assert self.get(connector, f"{folder}/file", 4) == b"0123"
        assert self.get(connector, f"{folder}/file", 0) == b""
        assert self.get(connector, f"{folder}/file", 100) == b"0123456789"

    def test_reading_a_file_that_is_not_there_is_an_error(self, connector: Connector, folder: str) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            self.get(connector, f"{folder}/missing")
        assert caught.value.filename == f"{folder}/missing"

    def test_reading_a_folder_is_an_error(self, connector: Connector, folder: str) -> None:
        with pytest.raises(IsADirectoryError):
            self.get(connector, folder)

    def test_reading_a_pipe_is_an_error_and_does_not_hang(self, connector: Connector, folder: str) -> None:
        self.run(connector, "mkfifo", f"{folder}/pipe")
        with pytest.raises(OSError, match="pipe"):
            self.get(connector, f"{folder}/pipe")
