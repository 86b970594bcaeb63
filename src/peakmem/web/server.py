"""The page and its one question over HTTP, as an ASGI application; listen.py runs it.

Nothing in a request names a file or an address: the page's files are a mapping in memory, and a model is a name or the
fields of a config.json.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from peakmem.immutable import immutable
from peakmem.version import __version__
from peakmem.web.guard import HEADERS, Rate, Refused, check_host, check_length, check_origin, check_type
from peakmem.web.openapi import document
from peakmem.web.pool import Answers, Busy, Gone, Pool, TooSlow
from peakmem.web.request import MOST
from peakmem.web.worker import Worker

TYPES = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
PAGE = "/ask"
"""For the page: a mistake of the reader has status 200, too; of any other a browser writes into its console."""
ASK = ("/api/ask", "/api/estimate", PAGE)
WRONG_METHOD = "this method is not for here"
TOO_LONG = f"the request is longer than {MOST:,} characters"


@immutable
class Limits:
    """Seconds, bytes and counts. Where only this machine can ask, all clients share one address: no rate is set."""

    answer: float = 20.0
    wait: float = 10.0
    head: float = 10.0
    body: float = 20.0
    idle: float = 15.0
    reader: float = 20.0
    body_bytes: int = 4 * MOST
    bytes_at_once: int = 64 * MOST
    connections: int = 1000
    waiting: int = 1000
    rate: float = 0.0
    burst: int = 300


class Service:
    """What the requests share."""

    def __init__(self, workers: list[Worker], limits: Limits, names: frozenset[str]) -> None:
        self.workers, self.limits, self.names = workers, limits, names
        self.rate = Rate(limits.rate, limits.burst)
        self.held = 0
        self.openapi = json.dumps(document(), separators=(",", ":"))

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        """The engine's processes, as long as the server runs."""
        self.pool = Pool(self.workers, self.limits.answer, self.limits.wait, self.limits.waiting)
        self.answers = Answers(self.pool)
        self.wanted = asyncio.Event()
        self.page = asyncio.create_task(self.pages())
        self.rest = asyncio.create_task(self.others())
        yield
        self.page.cancel()
        self.rest.cancel()
        self.pool.close()

    async def pages(self) -> dict[str, tuple[bytes, bytes, str]]:
        """The page's files: as they are, compressed, and their tags. Made when wanted, or when nothing else is."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.wanted.wait(), 0.5)
        found = json.loads(await self.pool.answer(b""))
        made = {}
        for name, text in found.items():
            content = text.encode()
            made[name] = content, gzip.compress(content, 6, mtime=0), f'"{sha256(content).hexdigest()[:20]}"'
        return made

    async def others(self) -> None:
        """The engine's further processes start when the first has made the page, and a second later: it is loaded."""
        await asyncio.wait([self.page])
        await asyncio.sleep(1)
        await self.pool.wake()

    async def file(self, request: Request) -> Response:
        """GET a file of the page."""
        name = request.path_params["name"] or "index.html"
        if f"/{name}" in ASK:
            raise Refused(405, WRONG_METHOD, allow="POST")
        self.wanted.set()
        if self.page.done() and (self.page.cancelled() or self.page.exception()):
            self.page = asyncio.create_task(self.pages())
        files = await asyncio.shield(self.page)
        if name not in files:
            raise Refused(404, "there is no such page")
        content, packed, tag = files[name]
        headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding",
                   "content-type": TYPES[name.rpartition(".")[2]]}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, headers={**headers, "content-encoding": "gzip"})
        return Response(content, headers=headers)

    async def ask(self, request: Request) -> Response:
        """POST a question."""
        check_origin(request.headers)
        check_type(request.headers)
        check_length(request.headers, self.limits.body_bytes, TOO_LONG)
        question = await self.body(request)
        try:
            address = request.client.host if request.client else ""
            answer = await self.unless_left(request, self.answers.to(question, address))
        except TooSlow:
            return told(503, f"this takes longer than {self.limits.answer:g} seconds; ask for something smaller, or "
                        "use the command line")
        except (Busy, Gone):
            return told(503, "too much is asked at once; ask again in some seconds", {"retry-after": "5"})
        finally:
            self.held -= len(question)
        fine = request.url.path == PAGE or not answer.startswith(b'{"error"')
        status = 200 if fine else 413 if TOO_LONG.encode() in answer[:80] else 400
        return Response(answer, status, NO_STORE, "application/json")

    async def body(self, request: Request) -> bytes:
        """All of it, within bounds; `held` counts it from here on."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body):
                async for part in request.stream():
                    parts.append(part)
                    size, self.held = size + len(part), self.held + len(part)
                    if size > self.limits.body_bytes:
                        raise Refused(413, TOO_LONG)
                    if self.held > self.limits.bytes_at_once:
                        raise Refused(503, "too much is asked at once", retry_after="1")
            question = b"".join(parts)
            if not question:
                raise Refused(400, "the request is empty")
            return question
        except BaseException as error:
            self.held -= size
            if isinstance(error, TimeoutError):
                raise Refused(408, f"the body did not come within {self.limits.body:g} seconds",
                              connection="close") from None
            raise

    async def unless_left(self, request: Request, work: Any) -> bytes:
        """The answer; where the client leaves before, nobody waits for it any longer."""
        asked, left = asyncio.ensure_future(work), asyncio.ensure_future(gone(request.receive))
        try:
            await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise ClientDisconnect
            answer: bytes = asked.result()
            return answer
        finally:
            asked.cancel()
            left.cancel()

    async def health(self, _: Request) -> Response:
        return Response(json.dumps({"status": "ok", "version": __version__}), 200, NO_STORE, "application/json")

    async def described(self, _: Request) -> Response:
        return Response(self.openapi, 200, {"cache-control": "no-cache"}, "application/json")

    async def refused(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return told(error.status, error.text, error.headers)

    async def unknown(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        text = {404: "there is no such page", 405: WRONG_METHOD}.get(error.status_code, error.detail)
        return told(error.status_code, text, dict(error.headers or {}))

    def app(self) -> ASGIApp:
        """The routes behind the guard."""
        routes = [*(Route(path, self.ask, methods=["POST"]) for path in ASK), Route("/health", self.health),
                  Route("/openapi.json", self.described), Route("/{name:path}", self.file)]
        return Guarded(Starlette(routes=routes, lifespan=self.running, exception_handlers={
            Refused: self.refused, HTTPException: self.unknown}), self)


NO_STORE = {"cache-control": "no-store"}


def told(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """One line about what went wrong."""
    return Response(json.dumps({"error": text}, separators=(",", ":")), status, {**NO_STORE, **(headers or {})},
                    "application/json")


async def gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Guarded:
    """Hosts and rates are checked before anything else; every answer has the headers that protect the page."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service
        self.headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        try:
            check_host([value.decode("latin-1") for name, value in scope["headers"] if name == b"host"],
                       self.service.names)
            self.service.rate.check((scope.get("client") or ("",))[0])
        except Refused as error:
            return await told(error.status, error.text, error.headers)(scope, receive, with_headers)
        try:
            await self.app(scope, receive, with_headers)
        except ClientDisconnect:
            pass

