// TypeScript clients over stdio: ts.mjs 1|2 SERVER SANDBOX COMMAND WORD
// 1 is the SDK of the era with `initialize`, 2 the client package that tries the newer era first.
// Runs from a copy beside the installed package, because that is where its imports are looked up.
const [generation, server, sandbox, command, word] = process.argv.slice(2);

async function parts() {
  if (generation === "1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    return { Client, StdioClientTransport, options: {}, era: undefined };
  }
  const { Client } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  return { Client, StdioClientTransport, options: { versionNegotiation: { mode: "auto" } }, era: "2026-07-28" };
}

function fail(message) {
  console.error(message.slice(0, 600));
  process.exit(1);
}

const { Client, StdioClientTransport, options, era } = await parts();
const client = new Client({ name: "release-check", version: "1" }, options);
await client.connect(new StdioClientTransport({ command: server }));
const { tools } = await client.listTools();
const calls = [
  ["list_sandboxes", {}, sandbox],
  ["exec_bash", { command, sandbox_name: sandbox }, word],
];
for (const [name, args, wanted] of calls) {
  const request = { name, arguments: args };
  const reply = generation === "1" ? await client.callTool(request, undefined, {}) : await client.callTool(request);
  const text = reply.content.filter((part) => part.type === "text").map((part) => part.text).join("");
  if (reply.isError) fail(`${name} answered an error: ${text}`);
  if (!text.includes(wanted)) fail(`${name}: ${wanted} is not in the reply: ${text}`);
}
const version = client.getNegotiatedProtocolVersion?.() ?? "version not told";
if (era && version !== era) fail(`calls work, but negotiated ${version}`);
console.log(`${version}, ${tools.length} tools, both calls answered`);
await client.close();
process.exit(0);
