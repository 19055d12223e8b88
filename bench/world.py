"""The hosts of a comparison: private sshds with their own keys and homes, a link that delays, and a host that is silent."""
from __future__ import annotations

import dataclasses
import getpass
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

SSHD_CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/client_key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PrintMotd no
MaxStartups {startups}
Subsystem sftp internal-sftp
SetEnv HOME={home} TMUX_TMPDIR={folder}
"""
# What sshd does by itself: of more than ten logins at a time it drops some.
USUAL_STARTUPS = "10:30:100"
SLOW_LOGIN_FILE = "sleep 0.2\n"
START_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class Host:
    """One place to log in to, as a contestant sees it."""

    name: str
    port: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: pathlib.Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", path], check=True)


class World:
    """Everything the contestants talk to; `close` ends it. The folder's name must be short: sockets lie in it.

    The account is the caller's, for that needs no rights, but `HOME` is an empty folder of ours, so that no login file of
    this machine is measured, and tmux has a socket of ours. Behind the last sshd the home has a `.bashrc` that sleeps.
    """

    def __init__(self, folder: pathlib.Path, sshd_count: int, round_trip_ms: float,
                 startups: str = USUAL_STARTUPS) -> None:
        self.folder, self.round_trip_ms, self.startups = folder, round_trip_ms, startups
        self.user, self.key = getpass.getuser(), folder / "client_key"
        self.children: list[subprocess.Popen] = []
        self.silent = socket.socket()
        try:
            make_key(folder / "host_key")
            make_key(self.key)
            homes = {name: folder / name for name in ("plain", "slow")}
            for home in homes.values():
                home.mkdir()
            (homes["slow"] / ".bashrc").write_text(SLOW_LOGIN_FILE, encoding="ascii")
            ports = [self._start_sshd(homes["plain"]) for _ in range(sshd_count)]
            ports.append(self._start_sshd(homes["slow"]))
            self.ports = {"loopback": ports, "delayed": self._start_proxy(ports, round_trip_ms)}
            # The kernel accepts for us; nobody ever says a word.
            self.silent.bind(("127.0.0.1", 0))
            self.silent.listen(256)
        except BaseException:
            self.close()
            raise

    def _start_sshd(self, home: pathlib.Path) -> int:
        port = free_port()
        config = self.folder / f"sshd-{port}"
        config.write_text(SSHD_CONFIG.format(port=port, folder=self.folder, home=home, startups=self.startups),
                          encoding="ascii")
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if program is None:
            raise FileNotFoundError("sshd is not installed")
        self.children.append(subprocess.Popen([program, "-D", "-f", config, "-E", f"{config}.log"],
                                              stdin=subprocess.DEVNULL))
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return port
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _start_proxy(self, ports: list[int], round_trip_ms: float, *limit: str) -> list[int]:
        program = pathlib.Path(__file__).with_name("delay_proxy.py")
        child = subprocess.Popen([sys.executable, program, *limit, str(round_trip_ms), *map(str, ports)],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        if child.stdout is None or not (line := child.stdout.readline()):
            raise OSError("the delaying proxy did not start")
        return [int(port) for port in json.loads(line)]

    def add_limited_link(self, link: str, round_trip_ms: float, mbit: float) -> None:
        """A further way to the same sshds, with so many million bits a second in each direction."""
        self.ports[link] = self._start_proxy(self.ports["loopback"], round_trip_ms, "--mbit", str(mbit))

    def hosts(self, link: str, count: int) -> list[Host]:
        """So many names, spread over the sshds, since each takes only a few logins at a time."""
        ports = self.ports[link][:-1]
        return [Host(f"host{at}", ports[at % len(ports)]) for at in range(count)]

    def slow_host(self, link: str) -> Host:
        """The host whose `.bashrc` sleeps."""
        return Host("host0", self.ports[link][-1])

    def silent_host(self, number: int) -> Host:
        """A host that takes connections and never speaks."""
        return Host(f"silent{number}", self.silent.getsockname()[1])

    def known_hosts(self) -> str:
        kind, key = (self.folder / "host_key.pub").read_text(encoding="ascii").split()[:2]
        return "".join(f"[127.0.0.1]:{port} {kind} {key}\n" for ports in self.ports.values() for port in ports)

    def close(self) -> None:
        self.silent.close()
        for child in reversed(self.children):
            child.terminate()
        for child in self.children:
            try:
                child.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
