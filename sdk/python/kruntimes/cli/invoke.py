"""`krt invoke`: calls a function. The exit status tells the outcome (design §12)."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from kruntimes.cli.options import Duration, Target, connection, run_names

USAGE = 2
STATUS = {
    "completed": 0,
    "function_error": 1,
    "rejected": 3,
    "not_dispatched": 3,
    "unknown": 4,
    "timeout": 5,
    "cancelled": 6,
}


@click.command()
@click.argument("name", shell_complete=run_names)
@click.option("-d", "--data", default="{}", metavar="JSON|@FILE|-", help="The payload. [default: {}]")
@click.option("--content-type", default="application/json", show_default=True, help="What the payload is.")
@click.option("--id", "invocation_id", metavar="ID", help="Invocation id, for logs and for cancelling it.")
@click.option("--timeout", type=Duration(), help="Deadline, such as 5s. [default: the platform's, 60s]")
@click.option("-o", "--output", type=click.Choice(["json"]), help="The whole answer: id, outcome, output, log tail.")
@connection
def command(
    target: Target,
    name: str,
    data: str,
    content_type: str,
    invocation_id: str | None,
    timeout: float | None,
    output: str | None,
) -> int:
    """Calls the function of the Run NAME and prints what it returned.

    Exit status: 0 completed, 1 the function failed, 3 rejected or not dispatched (a repeat is safe), 4 unknown,
    5 deadline passed, 6 cancelled, 2 wrong command line. Nothing is ever repeated.

    The bearer token is $KRT_TOKEN, else the kubeconfig's.
    """
    import msgspec

    from kruntimes.cli import runs
    from kruntimes.common.api.outcomes import ENVELOPE_TYPE
    from kruntimes.common.api.views import Run
    from kruntimes.sdk import wire
    from kruntimes.sdk.errors import Failed, SdkError

    body = payload(data)
    try:
        with target.client() as client:
            url, ca = wire.endpoint(msgspec.convert(runs.find(client, name), Run))
            done = client.invoke_url(
                url,
                body,
                ca_pem=ca,
                content_type=content_type,
                invocation_id=invocation_id,
                timeout=timeout,
                accept=ENVELOPE_TYPE if output else None,
            )
    except Failed as failure:
        if output:
            click.echo(json.dumps(failed(failure), indent=2, ensure_ascii=False))
        else:
            click.echo(complaint(failure), err=True)
        return STATUS[failure.outcome.value]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except SdkError as error:
        click.echo(f"krt: {error}", err=True)
        return STATUS["not_dispatched"]
    if output:
        envelope = {"outcome": done.outcome.value, **done.json()}
        click.echo(json.dumps(envelope, indent=2, ensure_ascii=False))
    else:
        sys.stdout.buffer.write(done.body)
        if sys.stdout.isatty() and not done.body.endswith(b"\n"):
            click.echo()
        sys.stdout.flush()
    return STATUS["completed"]


def payload(data: str) -> bytes:
    """The bytes that -d means: `-` is standard input, `@FILE` a file, anything else itself."""
    if data == "-":
        return sys.stdin.buffer.read()
    if data.startswith("@"):
        try:
            return Path(data[1:]).read_bytes()
        except OSError as error:
            raise click.UsageError(f"-d {data}: {error.strerror}") from None
    return data.encode()


def failed(failure: Any) -> dict[str, Any]:
    """A failure as JSON, in the words of the error document."""
    return {
        "outcome": failure.outcome.value,
        "retrySafe": failure.retry_safe,
        "status": failure.status,
        "reason": failure.reason,
        "message": str(failure),
        "invocationId": failure.invocation_id,
        "retryAfter": failure.retry_after,
        "details": failure.details,
    }


def complaint(failure: Any) -> str:
    """A failure for a person: what happened, the function's own traceback, and whether a repeat is safe."""
    again = f"; try again in {failure.retry_after} s" if failure.retry_after else ""
    lines = [f"krt: {failure.outcome.value}: {failure}{again} (invocation {failure.invocation_id})"]
    if failure.details.get("traceback"):
        lines.append(str(failure.details["traceback"]).rstrip())
    return "\n".join(lines)
