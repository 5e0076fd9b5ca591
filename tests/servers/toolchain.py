"""What servers are fetched and run with: Java 17, Maven, Go. Found on the machine, or Missing with what to install.

Rule 1: versions are pinned where they are used, and checked here: a program of the wrong version is as good as none.
Rule 2: Maven checks every file against the repository's checksum, Go against its checksum database.
Rule 3: Go is fetched where it is missing or too old, which it is in most distributions, against the checksum below.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import urllib.request
import zipfile
from pathlib import Path
from typing import Final

from .cache import Missing, Say, kept, run, say

JAVA: Final = 17
"""The newest that Cassandra 5.0 runs on: it installs a security manager, which Java 18 and later refuse."""
GO_AT_LEAST: Final = (1, 25)
_GO_FETCHED: Final = "1.26.10"
_GO_SHA256: Final = {
    "amd64": "f64ecb0807852be2c98899561c45288a9ad57f4e88f3cd002ffabeccbd03bfe1",
    "arm64": "195f18be92553fb272b9c4f9fca6e67b6a04d8831bf6c4b918ac70982fadb444",
}
_GO_PROXY: Final = "https://proxy.golang.org"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>widerow</groupId><artifactId>servers</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def java() -> str:
    """A Java 17: of JAVA_HOME, of the PATH, or where Debian and Fedora put it."""
    homes = [Path(os.environ["JAVA_HOME"]) / "bin/java"] if os.environ.get("JAVA_HOME") else []
    on_path = [Path(found)] if (found := shutil.which("java")) else []
    seen: list[str] = []
    for program in [*homes, *on_path, *sorted(Path("/usr/lib/jvm").glob("*17*/bin/java"))]:
        version = _version([str(program), "-version"], r'version "(\d+)')
        if version == (JAVA,):
            return str(program)
        seen.append(f"{program} is {version[0] if version else 'not usable'}")
    have = f" ({'; '.join(seen)})" if seen else ""
    raise Missing(f"Java {JAVA} is needed{have}: install openjdk-{JAVA}-jre-headless, or name one with JAVA_HOME")


def maven_jars(group: str, artifact: str, version: str, *more: str, tell: Say = say) -> Path:
    """The folder with an artifact's jar and all that it needs to run, and with `more` (`group:artifact:version`), a part of
    its version. Maven keeps its own copies in its own place.
    """

    def fetch(folder: Path) -> None:
        program = shutil.which("mvn")
        if program is None:
            raise Missing(f"{artifact} {version} is fetched with Maven: install maven")
        pom = folder / "pom.xml"
        wanted = [(group, artifact, version), *(name.split(":") for name in more)]
        pom.write_text(_POM.format(dependencies="\n".join(_DEPENDENCY.format(*names) for names in wanted)))
        options = ["-B", "--strict-checksums", "-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        run(f"{artifact} {version}", [program, *options, _COPY], tell=tell)

    return kept(f"{artifact}-{version}", fetch)


def go_program(package: str, version: str, *, tell: Say = say) -> Path:
    """A program built from a Go module."""

    def fetch(folder: Path) -> None:
        # Not what the machine is set to: a toolchain switch would hide which Go built it, other flags may not fit.
        environment = {"GOBIN": str(folder), "GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"}
        command = [str(_go(tell)), "install", "-v", f"{package}@{version}"]
        run(f"{name} {version}", command, environment=environment, tell=tell)

    name = package.split("/", 1)[1].replace("/", "-")
    return kept(f"{name}-{version}", fetch) / package.rpartition("/")[2]


def _go(tell: Say) -> Path:
    found = shutil.which("go")
    # Asked outside of any module, and as itself: the answer would else be that of a toolchain it might switch to.
    version = _version([found, "version"], r"go(\d+)\.(\d+)", {"GOTOOLCHAIN": "local"}) if found else ()
    if found and version >= GO_AT_LEAST:
        return Path(found)
    wanted = ".".join(map(str, GO_AT_LEAST))
    have = f"go is {'.'.join(map(str, version))}" if version else "there is no go"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
    if machine not in _GO_SHA256:
        raise Missing(
            f"Go {wanted} or newer is needed, {have}, and none can be fetched for {platform.machine()}: install it"
        )
    tell(f"Go {wanted} or newer is needed and {have}: using Go {_GO_FETCHED}, fetched")
    return _fetched_go(machine, wanted, tell)


def _fetched_go(machine: str, wanted: str, tell: Say) -> Path:
    """As the go command itself gets another toolchain: a module of the proxy, in which nothing is marked executable."""
    version = f"v0.0.1-go{_GO_FETCHED}.linux-{machine}"

    def fetch(folder: Path) -> None:
        proxy = re.split(r"[,|]", os.environ.get("GOPROXY", ""))[0]
        address = f"{proxy if '://' in proxy else _GO_PROXY}/golang.org/toolchain/@v/{version}.zip"
        tell(f"go {_GO_FETCHED}: fetching 64 MB from {address.split('/')[2]}, once")
        archive = folder / "go.zip"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer, archive.open("wb") as file:
                shutil.copyfileobj(answer, file, 1 << 20)
        except OSError as error:
            raise Missing(f"Go {wanted} or newer is needed and could not be fetched ({error}): install it") from error
        with archive.open("rb") as file:
            if (sum_ := hashlib.file_digest(file, "sha256").hexdigest()) != _GO_SHA256[machine]:
                raise Missing(f"{address} is not what it was when it was pinned: its SHA-256 is {sum_}")
        with zipfile.ZipFile(archive) as members:
            members.extractall(folder)
        archive.unlink()
        inside = folder / f"golang.org/toolchain@{version}"
        for program in [*inside.glob("bin/*"), *inside.glob("pkg/tool/*/*")]:
            program.chmod(0o755)

    return kept(f"go-{_GO_FETCHED}-{machine}", fetch) / f"golang.org/toolchain@{version}/bin/go"


def _version(command: list[str], pattern: str, environment: dict[str, str] | None = None) -> tuple[int, ...]:
    """The numbers of the pattern in what the command prints; empty if it says nothing of the kind."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, cwd="/", env=os.environ | (environment or {})
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = re.search(pattern, done.stdout + done.stderr)
    return tuple(int(number) for number in found.groups()) if found else ()
