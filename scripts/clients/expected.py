"""What every client must get from the server: one listing and one command, run on the private sshd."""
import json
import os

SANDBOX = os.environ.get("CHECK_SANDBOX", "throwaway")
WORD = "hello-from-the-sandbox"
# The word is completed on the other side, so a reply that merely repeats the command cannot pass.
COMMAND = "echo hello-from-the-${SSH_CONNECTION:+sandbox}"

CALLS = [
    ("list_sandboxes", {}, SANDBOX),
    ("exec_bash", {"command": COMMAND, "sandbox_name": SANDBOX}, WORD),
]


class Wrong(SystemExit):
    """Ends the program with a message and exit code 1."""


def require(condition, message):
    """Stops with the message unless the condition holds."""
    if not condition:
        raise Wrong(str(message)[:600])


def require_text(tool, text, wanted, is_error):
    """A reply must be a success and carry the wanted word."""
    require(not is_error, f"{tool} answered an error: {text}")
    require(wanted in text, f"{tool}: {wanted!r} is not in the reply: {text}")


def compact(value):
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))
