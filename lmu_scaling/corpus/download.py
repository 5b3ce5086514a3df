"""Downloads that are resumed, retried, taken from the next mirror if one fails, and verified.

Bytes go to `<name>.partial` beside the target, which a later run continues; only a file whose size and sha256 match the
catalogue is renamed. A lock keeps the partial file to one process at a time; a second one waits.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from lmu_scaling.errors import DiskFull, DownloadError
from lmu_scaling.lock import exclusive
from lmu_scaling.runtime import Progress, disk_full_is_explained, si

CHUNK = 1 << 20


@dataclass(frozen=True)
class RetryLimits:
    """Retry limits: attempts per mirror, the first pause (it doubles), seconds without a byte, bytes per second.

    A host that was never reached gets fewer attempts, so that a machine without a network fails soon.
    """

    attempts: int = 6
    unreached: int = 3
    pause: float = 2.0
    longest_pause: float = 120.0
    stall: float = 60.0
    slowest: float = 1000.0  # over `stall` seconds; at this rate OpenWebText2 would take a year


@dataclass(frozen=True)
class Extent:
    """What is wanted of a remote file: `size` bytes from `offset` on; the file has `total` bytes."""

    offset: int
    size: int
    total: int

    @property
    def whole(self) -> bool:
        return self.size == self.total

    def headers(self, have: int) -> dict[str, str]:
        """The request's headers if `have` bytes are there already."""
        if self.whole:
            return {"Range": f"bytes={have}-"} if have else {}
        return {"Range": f"bytes={self.offset + have}-{self.offset + self.size - 1}"}


class MirrorFailed(Exception):
    """Give this mirror up and try the next one."""


class _TryAgain(Exception):
    """The transfer was interrupted; try the same mirror again."""


def download(mirrors: list[str], target: Path, size: int, sha256: str, limits: RetryLimits | None = None) -> Path:
    """Download `target`, which has `size` bytes and checksum `sha256`; a file that is there and matches is kept."""
    limits = limits or RetryLimits()
    partial = target.with_name(target.name + ".partial")
    with disk_full_is_explained(target), locked(partial):
        if target.is_file() and target.stat().st_size == size and checked_sha256(target) == sha256:
            return target
        have = partial.stat().st_size if partial.exists() else 0
        check_space(target.parent, target.name, size - have)
        failures = []
        for url in mirrors:
            try:
                _deliver(url, partial, size, sha256, limits)
                os.replace(partial, target)
                return target
            except MirrorFailed as failure:
                failures.append(f"{url}: {failure}")
        reasons = "\n    ".join(failures)
        raise DownloadError(
            f"no mirror delivered {target.name}:\n    {reasons}",
            str(target),
            "run again later (a partial download is continued), or fetch the file yourself and set corpus.path",
        )


@contextmanager
def locked(partial: Path) -> Iterator[None]:
    with exclusive(partial.with_name(f"{partial.name}.lock"), what="another process downloads this file"):
        yield


def check_space(folder: Path, name: str, needed: int) -> None:
    """Raise if `needed` bytes do not fit on the disk."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFull(
            f"{name} needs {si(needed)}B more, {si(free)}B are free",
            str(folder),
            "free some space, or set corpus.path to a copy on another disk",
        )


def checked_sha256(path: Path) -> str:
    """The sha256 of a file, with progress: half a minute for OpenWebText2."""
    digest = hashlib.sha256()
    with open(path, "rb") as file, Progress(path.stat().st_size, f"checking {path.name}", "B") as bar:
        while data := file.read(CHUNK):
            digest.update(data)
            bar.update(len(data))
    return digest.hexdigest()


def _verify(partial: Path, sha256: str) -> None:
    found = checked_sha256(partial)
    if found != sha256:
        partial.unlink()
        raise MirrorFailed(f"wrong content: sha256 {found} instead of {sha256}")


def _deliver(url: str, partial: Path, size: int, sha256: str, limits: RetryLimits) -> None:
    """Get the whole file from one mirror; start over if a partial file from another mirror turns out to be wrong."""
    inherited = partial.exists() and partial.stat().st_size > 0
    whole = Extent(0, size, size)
    fill(url, partial, whole, limits)
    try:
        _verify(partial, sha256)
    except MirrorFailed as failure:
        if not inherited:
            raise
        print(f"{urlsplit(url).hostname}: {failure}; part of it came from another mirror, starting over", flush=True)
        fill(url, partial, whole, limits)
        _verify(partial, sha256)


def fill(url: str, partial: Path, wanted: Extent, limits: RetryLimits) -> None:
    """Complete `partial` from one mirror. An attempt that brought bytes resets the count of failures."""
    failed, reached = 0, False
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        if before > wanted.size:
            partial.unlink()
            before = 0
        if before == wanted.size:
            return
        try:
            _transfer(url, partial, before, wanted, limits)
        except (_TryAgain, requests.ConnectionError, requests.Timeout) as error:
            now = partial.stat().st_size if partial.exists() else 0
            reached = reached or now > before or not isinstance(error, requests.ConnectionError)
            failed = 1 if now > before else failed + 1
            allowed = limits.attempts if reached else limits.unreached
            if failed >= allowed:
                raise MirrorFailed(f"gave up after {failed} attempts: {_reason(error)}") from error
            pause = min(limits.pause * 2 ** (failed - 1), limits.longest_pause)
            print(f"{urlsplit(url).hostname}: {_reason(error)}; trying again in {pause:.0f} s", flush=True)
            time.sleep(pause)
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            # some layers raise a bare ValueError for invalid addresses and numbers
            raise MirrorFailed(str(error)) from error


def _reason(error: Exception) -> str:
    """The reason without the connection pools and object addresses that libraries wrap around it."""
    inner = error.args[0] if error.args else error
    reason = getattr(inner, "reason", None) or inner
    return re.sub(r"^(<.*?>|\w+\(host=.*?\)): ", "", str(reason))


def _transfer(url: str, partial: Path, have: int, wanted: Extent, limits: RetryLimits) -> None:
    _refuse_unencrypted(url)
    headers = {"Accept-Encoding": "identity"} | wanted.headers(have)
    redirects = {"response": _refuse_redirect}
    with requests.get(url, headers=headers, stream=True, timeout=(30, limits.stall), hooks=redirects) as response:
        have = _check_response(response, have, wanted)
        with (
            disk_full_is_explained(partial),
            open(partial, "r+b" if have else "wb") as file,
            Progress(wanted.size, f"downloading {partial.stem}", "B") as bar,
        ):
            file.seek(have)
            bar.update(have)
            _copy(_fast_enough(_arriving(response), limits), file.write, bar.update, wanted.size - have)
            file.truncate()


def _refuse_redirect(response: requests.Response, **_: object) -> None:
    """Check the address that a mirror redirects to before it is contacted."""
    if response.is_redirect:
        _refuse_unencrypted(urljoin(response.url, response.headers["Location"]))


def _refuse_unencrypted(url: str) -> None:
    """Allow https, and http to this machine."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        raise MirrorFailed(f"refused: {parts.scheme}://{parts.hostname} is not https")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _copy(arriving: Iterator[bytes], write: Callable, advance: Callable, missing: int) -> None:
    for data in arriving:
        if len(data) > missing:
            raise MirrorFailed("the server sends more bytes than the file has")
        write(data)
        missing -= len(data)
        advance(len(data))
    if missing:
        raise _TryAgain(f"the transfer ended {missing} bytes early")


def _arriving(response: requests.Response) -> Iterator[bytes]:
    """Yield bytes as soon as they arrive, so that none is lost when the connection breaks within a chunk."""
    try:
        while data := response.raw.read1(CHUNK):
            yield data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _TryAgain(str(error)) from error


def _fast_enough(arriving: Iterator[bytes], limits: RetryLimits) -> Iterator[bytes]:
    """Give up a mirror that is slower than `limits.slowest`; without this, a trickle of bytes would never time out."""
    begun, received = time.monotonic(), 0
    for data in arriving:
        yield data
        received += len(data)
        passed = time.monotonic() - begun
        if passed >= limits.stall:
            if received < limits.slowest * passed:
                raise MirrorFailed(f"too slow: {si(received)}B in {passed:.0f} s")
            begun, received = time.monotonic(), 0


def _check_response(response: requests.Response, have: int, wanted: Extent) -> int:
    """How many of the bytes that are there stay, 0 if the server sends the file from its start.

    Raises if the response cannot be what is wanted.
    """
    status, kind = response.status_code, response.headers.get("Content-Type", "")
    if status == 429 or status >= 500:
        raise _TryAgain(f"HTTP status {status}")
    if status not in (200, 206):
        raise MirrorFailed(f"HTTP status {status}")
    if kind.startswith("text/html"):
        raise MirrorFailed("an HTML page came instead of the file")
    if status == 200 and not wanted.whole:
        raise MirrorFailed("the server ignores ranges, so it cannot send a part of the file")
    start = have if status == 206 else 0
    if status == 206:
        _check_range(response.headers.get("Content-Range", ""), have, wanted)
    length = response.headers.get("Content-Length")
    if length is not None and (not length.isdigit() or int(length) != wanted.size - start):
        told = int(length) + start if length.isdigit() else repr(length)
        what = "file" if wanted.whole else "answer"
        raise MirrorFailed(f"the server's {what} has {told} bytes instead of {wanted.size}")
    return start


def _check_range(told: str, have: int, wanted: Extent) -> None:
    first = wanted.offset + have
    if not told.startswith(f"bytes {first}-"):
        raise MirrorFailed(f"wrong range {told!r} in answer to byte {first}")
    total = told.rpartition("/")[2]
    if not wanted.whole and total not in ("*", str(wanted.total)):
        raise MirrorFailed(f"the server's file has {total} bytes instead of {wanted.total}")
