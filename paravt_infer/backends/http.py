"""What the two backends that speak HTTP share: retries with backoff for faults that pass, one line for the others."""

from typing import Any

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from paravt_infer.errors import BackendError

ATTEMPTS = 5


def is_transient(error: BaseException) -> bool:
    """Whether asking again may help: the connection broke, or the server says the fault is its own."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500 or error.response.status_code == 429
    return isinstance(error, (httpx.TransportError, ValueError))


def retry_transient(first_wait: float = 0.2) -> AsyncRetrying:
    """Up to five attempts, waiting about 0.2 s and each time twice as long; never for a 4xx."""
    return AsyncRetrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=first_wait, max=8, jitter=first_wait),
        reraise=True,
    )


def json_object(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a good response. Raises HTTPStatusError, or ValueError where it is no such object."""
    response.raise_for_status()
    body = response.json()
    if not isinstance(body, dict):
        raise ValueError("the response is not a JSON object")
    return body


def backend_error(url: str, error: Exception) -> BackendError:
    """A failed request as one line: which server, what it said, what to do."""
    if isinstance(error, httpx.HTTPStatusError):
        said: Any = error.response.text
        try:
            body = error.response.json()
            said = body.get("error", body.get("message", said)) if isinstance(body, dict) else said
            said = said.get("message", said) if isinstance(said, dict) else said
        except ValueError:
            pass
        return BackendError(f"{url} answered {error.response.status_code}: {' '.join(str(said).split())[:300]}")
    if isinstance(error, httpx.TimeoutException):
        return BackendError(f"{url} did not answer in time ({type(error).__name__}); is the server overloaded?")
    if isinstance(error, httpx.TransportError):
        return BackendError(f"{url} cannot be reached ({error or type(error).__name__}); is the server running?")
    return BackendError(f"{url} sent no usable answer ({error}); is it a server of this kind?")
