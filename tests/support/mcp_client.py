#!/usr/bin/python3
"""A client of the Model Context Protocol, for tests: it lists and uses all that a server has, and checks every message
against what the protocol says of it and every result against the schema that its own tool declares.

mcp_client.py REVISION ARGUMENTS COMMAND... : ARGUMENTS is a JSON object of arguments by tool. Prints a JSON object of what
was found. Exit codes: 0 all is well, 1 not (the reason on stderr), 77 python3-jsonschema is missing."""

import json
import subprocess
import sys

try:
    from jsonschema import Draft202012Validator
except ImportError:
    print("SKIPPED: python3-jsonschema is missing", file=sys.stderr)
    sys.exit(77)

STATELESS = "2026-07-28"

# Of the protocol's published schemas, the parts that a server like this one can get wrong; written anew.
TEXT = {"type": "string"}
META = {"type": "object"}
IDENTITY = {"type": "object", "required": ["name", "version"], "properties": {"name": TEXT, "version": TEXT, "title": TEXT}}
CONTENT = {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "text"}, "text": TEXT}}
LISTED = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "title": TEXT, "description": TEXT}}
CAPABILITIES = {"type": "object", "properties": {name: {"type": "object"} for name in ("tools", "prompts", "resources")}}
TOOL = {**LISTED, "required": ["name", "inputSchema"],
        "properties": {**LISTED["properties"],
                       "inputSchema": {"type": "object", "required": ["type"], "properties": {"type": {"const": "object"}}},
                       "outputSchema": {"type": "object", "required": ["type"], "properties": {"type": {"const": "object"}}},
                       "annotations": {"type": "object", "properties": {
                           "title": TEXT, **{f"{hint}Hint": {"type": "boolean"}
                                             for hint in ("readOnly", "destructive", "idempotent", "openWorld")}}}}}
PROMPT = {**LISTED, "properties": {**LISTED["properties"], "arguments": {"type": "array", "items": {
    "type": "object", "required": ["name"], "properties": {"name": TEXT, "description": TEXT, "required": {"type": "boolean"}}}}}}
RESOURCE = {**LISTED, "required": ["name", "uri"], "properties": {**LISTED["properties"], "uri": TEXT, "mimeType": TEXT}}


def listing(name, item):
    return {"type": "object", "required": [name], "properties": {name: {"type": "array", "items": item}, "nextCursor": TEXT}}


RESULTS = {
    "initialize": {"type": "object", "required": ["protocolVersion", "capabilities", "serverInfo"], "properties": {
        "protocolVersion": TEXT, "capabilities": CAPABILITIES, "serverInfo": IDENTITY, "instructions": TEXT}},
    "server/discover": {"type": "object", "required": ["supportedVersions", "capabilities"], "properties": {
        "supportedVersions": {"type": "array", "items": TEXT, "minItems": 1}, "capabilities": CAPABILITIES,
        "instructions": TEXT}},
    "ping": {"type": "object"},
    "tools/list": listing("tools", TOOL),
    "prompts/list": listing("prompts", PROMPT),
    "resources/list": listing("resources", RESOURCE),
    "resources/templates/list": listing("resourceTemplates", LISTED),
    "tools/call": {"type": "object", "required": ["content"], "properties": {
        "content": {"type": "array", "items": CONTENT}, "isError": {"type": "boolean"}}},
    "prompts/get": {"type": "object", "required": ["messages"], "properties": {"description": TEXT, "messages": {
        "type": "array", "items": {"type": "object", "required": ["role", "content"],
                                   "properties": {"role": {"enum": ["user", "assistant"]}, "content": CONTENT}}}}},
    "resources/read": {"type": "object", "required": ["contents"], "properties": {"contents": {
        "type": "array", "minItems": 1, "items": {"type": "object", "required": ["uri", "text"],
                                                  "properties": {"uri": TEXT, "text": TEXT, "mimeType": TEXT}}}}},
}
CACHEABLE = {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
IDENTIFIER = {"type": ["string", "number"]}
ERROR = {"type": "object", "required": ["jsonrpc", "error"], "additionalProperties": False, "properties": {
    "jsonrpc": {"const": "2.0"}, "id": IDENTIFIER, "error": {
        "type": "object", "required": ["code", "message"], "additionalProperties": False,
        "properties": {"code": {"type": "integer"}, "message": TEXT, "data": {}}}}}
PROGRESS = {"type": "object", "required": ["jsonrpc", "method", "params"], "additionalProperties": False, "properties": {
    "jsonrpc": {"const": "2.0"}, "method": {"const": "notifications/progress"}, "params": {
        "type": "object", "required": ["progressToken", "progress"],
        "properties": {"progressToken": IDENTIFIER, "progress": {"type": "number"}, "message": TEXT}}}}


def answer_schema(method, revision):
    result = json.loads(json.dumps(RESULTS[method]))
    result.setdefault("properties", {})["_meta"] = META
    if revision == STATELESS:
        result.setdefault("required", []).append("resultType")
        result["properties"]["resultType"] = {"const": "complete"}
        result["properties"]["_meta"] = {"type": "object", "properties": {"io.modelcontextprotocol/serverInfo": IDENTITY}}
        if method in CACHEABLE:
            result["required"] += ["ttlMs", "cacheScope"]
            result["properties"] |= {"ttlMs": {"type": "integer", "minimum": 0}, "cacheScope": {"enum": ["public", "private"]}}
    return {"type": "object", "required": ["jsonrpc", "id", "result"], "additionalProperties": False,
            "properties": {"jsonrpc": {"const": "2.0"}, "id": IDENTIFIER, "result": result}}


class Wrong(Exception):
    pass


def check(document, schema, what):
    for error in Draft202012Validator(schema).iter_errors(document):
        raise Wrong(f"{what}: /{'/'.join(map(str, error.absolute_path))}: {error.message}"[:2000])


class Client:
    def __init__(self, command, revision):
        self.revision = revision
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        self.last_id = 0
        self.progress = []
        self.bytes = 0
        if revision != STATELESS:
            started = self.ask("initialize", {"protocolVersion": revision, "capabilities": {},
                                              "clientInfo": {"name": "test", "version": "1"}})
            if started["protocolVersion"] != revision:
                raise Wrong(f"asked for {revision}, got {started['protocolVersion']}")
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params=None):
        """The result of a request, which must succeed."""
        message = self.exchange(method, params)
        if "error" in message:
            raise Wrong(f"{method}: {message['error']}")
        return message["result"]

    def exchange(self, method, params=None):
        params = dict(params or {})
        if self.revision == STATELESS:
            params["_meta"] = {**params.get("_meta", {}), "io.modelcontextprotocol/protocolVersion": STATELESS,
                               "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                               "io.modelcontextprotocol/clientCapabilities": {}}
        self.last_id += 1
        self.write({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise Wrong(f"{method}: the server ended")
            message = json.loads(line)
            if message.get("method"):
                check(message, PROGRESS, "notification")
                self.progress.append(message["params"])
                continue
            if message.get("id") != self.last_id:
                raise Wrong(f"{method}: an answer to {message.get('id')}, not {self.last_id}: {line[:200]}")
            check(message, ERROR if "error" in message else answer_schema(method, self.revision), method)
            self.bytes = len(line.encode())
            return message

    def call(self, tool, **arguments):
        """The structured content of a tool that must succeed."""
        return content_of(self.ask("tools/call", {"name": tool, "arguments": arguments}), tool)

    def close(self):
        self.process.stdin.close()
        return self.process.wait(timeout=60)


def content_of(result, tool):
    if result.get("isError"):
        raise Wrong(f"{tool}: {result['content'][0]['text']}")
    text = json.loads(result["content"][0]["text"])
    if "structuredContent" in result and text != result["structuredContent"]:
        raise Wrong(f"{tool}: the text is not the structured content")
    return text


def has_null(value):
    if isinstance(value, (dict, list)):
        return any(map(has_null, value.values() if isinstance(value, dict) else value))
    return value is None


def use_all(client, arguments):
    """Every tool (also compact), prompt and resource. What was found, by tool."""
    found = {}
    tools = client.ask("tools/list")["tools"]
    for tool in tools:
        name = tool["name"]
        for compact in (False, True):
            asked = {**arguments.get(name, {}), "compact": compact}
            check(asked, tool["inputSchema"], f"arguments of {name}")
            result = client.ask("tools/call", {"name": name, "arguments": asked, "_meta": {"progressToken": name}})
            content = content_of(result, name)
            if "outputSchema" in tool:
                Draft202012Validator.check_schema(tool["outputSchema"])
                check(content, tool["outputSchema"], f"{name}{' compact' if compact else ''}")
            if "coverage" not in content:
                raise Wrong(f"{name}: no coverage")
            if compact and has_null(content):
                raise Wrong(f"{name}: a compact answer has null in it")
            found[name + (":compact" if compact else "")] = content
    if client.revision != "2024-11-05" and not {tool["name"] for tool in tools} >= {p["progressToken"] for p in client.progress}:
        raise Wrong("progress of what was not asked for")
    if not client.progress:
        raise Wrong("no progress")
    for prompt in client.ask("prompts/list")["prompts"]:
        client.ask("prompts/get", {"name": prompt["name"],
                                   "arguments": {argument["name"]: "1" for argument in prompt.get("arguments", [])}})
    for resource in client.ask("resources/list")["resources"]:
        contents = client.ask("resources/read", {"uri": resource["uri"]})["contents"]
        if contents[0]["uri"] != resource["uri"] or len(contents[0]["text"]) < 500:
            raise Wrong(f"{resource['uri']}: {contents}")
    client.ask("resources/templates/list")
    return found


def main():
    revision, arguments, command = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
    client = Client(command, revision)
    if revision == STATELESS and STATELESS not in client.ask("server/discover")["supportedVersions"]:
        raise Wrong("server/discover does not name its own revision")
    found = use_all(client, arguments)
    for method in ("no/such", "tools/call"):
        error = client.exchange(method)["error"]
        if error["code"] != {"no/such": -32601, "tools/call": -32602}[method]:
            raise Wrong(f"{method}: {error}")
    if client.close() != 0:
        raise Wrong("the server did not end well")
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except Wrong as wrong:
        print(wrong, file=sys.stderr)
        sys.exit(1)
