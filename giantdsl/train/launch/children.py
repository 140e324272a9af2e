"""The processes of ranks that this one started: their output, their end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from giantdsl.train.launch.channel import Channel

_LOG_LINES = 30


@dataclass(slots=True)
class Child:
    """One rank's process. It leads a session of its own, with whatever it starts itself: a
    Ctrl-C at the terminal reaches the parent only, and one signal reaches all of the rank."""

    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    log: Path | None
    is_reaped: bool = False

    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs. It stays a zombie, so that its number and
        its group's cannot become somebody else's before `reap`."""
        if self.is_reaped:
            return self.process.returncode
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self.process.pid, flags)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def signal(self, number: int) -> None:
        """To the process and all it started."""
        if not self.is_reaped:
            # macOS answers EPERM where only a zombie is left.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)

    def reap(self) -> None:
        """Kill what is left of it, wait for its end, close its line."""
        self.signal(signal.SIGKILL)
        self.process.wait()
        self.is_reaped = True
        self.channel.close()

    def log_end(self) -> str:
        """The last lines it wrote; "" for the rank that writes to the terminal."""
        if self.log is None:
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        if not lines:
            return ""
        shown = "\n".join(f"  {line}" for line in lines[-_LOG_LINES:])
        return f"the end of {self.log}:\n{shown}"


def start_child(
    rank: int, payload: BinaryIO, board: BinaryIO, log: Path | None, environment: dict[str, str]
) -> Child:
    """A fresh interpreter: a forked one would share threads, locks and CUDA state with the
    parent, and multiprocessing's spawn runs the user's main script again."""
    ours, theirs = socket.socketpair()
    with theirs:
        handles = (theirs.fileno(), payload.fileno(), board.fileno())
        output = None if log is None else log.open("wb")
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-X", "faulthandler"),
                    *("-m", "giantdsl.train.launch.worker", "--rank", str(rank)),
                    *("--parent", str(os.getpid())),
                    *("--control", str(handles[0]), "--payload", str(handles[1])),
                    *("--board", str(handles[2])),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=handles,
                start_new_session=True,
                env=environment,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            if output is not None:
                output.close()
    return Child(rank, process, Channel(ours), log)
