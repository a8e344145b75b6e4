"""Shared by the HTTP backends: retries with backoff for transient errors, one-line messages for the others."""

import socket
from contextlib import suppress
from typing import Any

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from paravt_infer.errors import BackendError

ATTEMPTS = 5
REQUEST_ERRORS = (httpx.HTTPError, httpx.InvalidURL, ValueError)
"""What a request and `json_object` raise; `backend_error` describes it."""


def http_client(seconds: float, **options: Any) -> httpx.AsyncClient:
    """A client for any number of concurrent generations of up to `seconds` each."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    return httpx.AsyncClient(timeout=httpx.Timeout(seconds, connect=10.0), limits=limits, **options)


def is_transient(error: BaseException) -> bool:
    """Whether a retry may help: the connection broke, the reply was malformed, or the status is 429 or 5xx."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    return isinstance(error, (httpx.TransportError, ValueError))


def retry_transient(first_wait: float = 0.2) -> AsyncRetrying:
    """Up to `ATTEMPTS` attempts with exponential backoff, by default from about 0.2 s; none after other 4xx."""
    return AsyncRetrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=first_wait, max=8, jitter=first_wait),
        reraise=True,
    )


def json_object(response: httpx.Response) -> dict[str, Any]:
    """The JSON object in a response. Raises HTTPStatusError, or ValueError if there is none."""
    response.raise_for_status()
    body = response.json()
    if not isinstance(body, dict):
        raise ValueError("the response is not a JSON object")
    return body


def backend_error(url: str, error: Exception) -> BackendError:
    """A failed request as a one-line error: the server, what it replied, and what to do."""
    if isinstance(error, httpx.HTTPStatusError):
        message: Any = error.response.text
        with suppress(ValueError):
            body = error.response.json()
            message = body.get("error", body.get("message", message)) if isinstance(body, dict) else message
            message = message.get("message", message) if isinstance(message, dict) else message
        return BackendError(f"{url} answered {error.response.status_code}: {' '.join(str(message).split())[:300]}")
    if isinstance(error, httpx.TimeoutException):
        return BackendError(f"{url} did not answer in time ({type(error).__name__}); is the server overloaded?")
    if isinstance(error, httpx.TransportError):
        return BackendError(f"{url} cannot be reached ({error or type(error).__name__}); is the server running?")
    return BackendError(f"{url} sent no usable answer ({error}); is it the right kind of server?")


def free_port(address: str) -> int:
    """A port on which nothing listens at this local address."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
