"""A loopback stand-in for a model: makes an agent call both tools, then say "done".

    scripted_model.py serve PORT RECORD     RECORD gets what the agent showed the model after each call
    scripted_model.py verify RECORD         exit 0 when both replies reached the model

Speaks just enough of the Messages and the Responses interface for Claude Code and Codex.
"""
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from expected import CALLS, require


class Model(BaseHTTPRequestHandler):
    """Answers one request of an agent."""

    protocol_version = "HTTP/1.1"
    record = ""

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer_events(self, events):
        lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.answer(lines.encode(), "text/event-stream")

    def do_GET(self):
        self.answer({"data": [], "models": []})

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        request = json.loads(self.rfile.read(length) or b"{}")
        if "count_tokens" in self.path:
            self.answer({"input_tokens": 1})
        elif self.path.split("?")[0].endswith("/responses"):
            self.answer_responses(request)
        elif "/messages" in self.path:
            self.answer_messages(request)
        else:
            self.answer({})

    def next_call(self, shown):
        """The next step of the script, given the tool results shown so far; None when it is over."""
        if shown:
            with open(self.record + ".new", "w", encoding="utf-8") as file:
                json.dump(shown, file)
            os.replace(self.record + ".new", self.record)
        return CALLS[len(shown)] if len(shown) < len(CALLS) else None

    def answer_responses(self, request):
        shown = [item["output"] for item in request.get("input", [])
                 if str(item.get("type", "")).endswith("_call_output")]
        step = self.next_call(shown)
        if step:
            name, arguments, _ = step
            item = {"type": "function_call", "id": f"item_{len(shown)}", "call_id": f"call_{len(shown)}",
                    "namespace": "mcp__srv", "name": name, "arguments": json.dumps(arguments)}
        else:
            item = {"type": "message", "id": "item_end", "role": "assistant",
                    "content": [{"type": "output_text", "text": "done"}]}
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
                 "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        self.answer_events([
            {"type": "response.created", "response": {"id": "response_0"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {
                "id": "response_0", "object": "response", "status": "completed", "output": [item], "usage": usage}},
        ])

    def answer_messages(self, request):
        shown = [part for message in request.get("messages", []) if isinstance(message["content"], list)
                 for part in message["content"] if part.get("type") == "tool_result"]
        # Side questions (titles, summaries) come without tools and must not use up a step.
        step = self.next_call(shown) if request.get("tools") else None
        if step:
            name, arguments, _ = step
            block = {"type": "tool_use", "id": f"toolu_{len(shown)}", "name": f"mcp__srv__{name}", "input": arguments}
            delta, reason = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}, "tool_use"
        else:
            block, reason = {"type": "text", "text": "done"}, "end_turn"
            delta = {"type": "text_delta", "text": "done"}
        message = {"id": "message_0", "type": "message", "role": "assistant", "model": request.get("model", "scripted"),
                   "content": [], "stop_reason": None, "stop_sequence": None,
                   "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not request.get("stream"):
            self.answer({**message, "content": [block], "stop_reason": reason})
            return
        opening = {**block, "input": {}} if step else {"type": "text", "text": ""}
        self.answer_events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": opening},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
             "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ])


def verify(record):
    require(os.path.exists(record), "no tool reply reached the model")
    with open(record, encoding="utf-8") as file:
        shown = json.load(file)
    require(len(shown) >= len(CALLS), f"only {len(shown)} of {len(CALLS)} replies reached the model: {shown}")
    for (name, _, wanted), seen in zip(CALLS, shown):
        text = json.dumps(seen)
        require(wanted in text and '"is_error": true' not in text, f"{name}: the model saw {text}")
    print(f"the model saw both replies; the last: {json.dumps(shown[-1])}")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        Model.record = sys.argv[3]
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Model).serve_forever()
    else:
        verify(sys.argv[2])
