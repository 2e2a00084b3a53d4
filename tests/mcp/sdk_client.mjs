// The official SDK as a client: lists and uses every tool, prompt and resource of a server on standard input and output.
// sdk_client.mjs ARGUMENTS COMMAND... : ARGUMENTS is a JSON object of arguments by tool. The SDK itself validates each
// structured content against its tool's output schema. Prints what was used. Exit codes: 0 all is well, 1 not, 77 the SDK
// is missing.
import assert from "node:assert/strict";

let Client, StdioClientTransport;
try {
  ({ Client } = await import("@modelcontextprotocol/sdk/client/index.js"));
  ({ StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js"));
} catch (error) {
  console.error(`SKIPPED: the MCP SDK is missing, 'npm ci' in tests/mcp installs it: ${error.message}`);
  process.exit(77);
}

const [given, command, ...args] = process.argv.slice(2);
const argumentsOf = JSON.parse(given);
const transport = new StdioClientTransport({ command, args });
const client = new Client({ name: "ingero-test", version: "1" });
const errors = [];
client.onerror = (error) => errors.push(error);
await client.connect(transport);
assert.equal(client.getServerVersion().name, "ingero");
assert.ok(client.getInstructions().includes("get_incidents"));
await client.ping();

const used = { tools: [], prompts: [], resources: [] };
const { tools } = await client.listTools();
for (const tool of tools) {
  assert.equal(tool.annotations.readOnlyHint, true, tool.name);
  for (const compact of [false, true]) {
    const result = await client.callTool({ name: tool.name, arguments: { ...argumentsOf[tool.name], compact } });
    assert.ok(!result.isError, `${tool.name}: ${JSON.stringify(result.content)}`);
    assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent, tool.name);
    assert.ok(result.structuredContent.coverage, tool.name);
  }
  used.tools.push(tool.name);
}
const { prompts } = await client.listPrompts();
for (const prompt of prompts) {
  const values = Object.fromEntries((prompt.arguments ?? []).map(({ name }) => [name, "1"]));
  const { messages } = await client.getPrompt({ name: prompt.name, arguments: values });
  assert.ok(messages[0].content.text.includes("get_"), prompt.name);
  used.prompts.push(prompt.name);
}
const { resources } = await client.listResources();
for (const { uri } of resources) {
  const { contents } = await client.readResource({ uri });
  assert.ok(contents[0].text.length > 500, uri);
  used.resources.push(uri);
}
assert.deepEqual((await client.listResourceTemplates()).resourceTemplates, []);

// What a model got wrong is a result, what the client got wrong an error.
const refused = await client.callTool({ name: "get_trace_stats", arguments: { no_such: 1 } });
assert.equal(refused.isError, true);
await assert.rejects(client.callTool({ name: "no_such" }), { code: -32602 });
await assert.rejects(client.readResource({ uri: "ingero://none" }));
assert.deepEqual(errors, []);
await client.close();
console.log(JSON.stringify(used));
