// Reads one JSON string of base64 bytes a line, feeds them to Node's HTTP server as one connection, and answers each line
// with the requests that server saw and whether it refused.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Duplex } from "node:stream";

const tick = () => new Promise((resolve) => setImmediate(resolve));

class Connection extends Duplex {
  setTimeout() {}
  setNoDelay() {}
  setKeepAlive() {}
  _read() {}
  _write(chunk, encoding, done) {
    done();
  }
}

async function judge(data) {
  const seen = [];
  let refused = false;
  const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    const body = [];
    request.on("data", (chunk) => body.push(chunk));
    request.on("end", () => {
      const bytes = Buffer.concat(body).toString("base64");
      seen.push({ method: request.method, target: request.url, headers: request.rawHeaders, body: bytes });
      response.end();
    });
    request.on("error", () => {});
  });
  server.on("clientError", (error, socket) => {
    refused = true;
    // What came before the error is still on its way to the listeners.
    setImmediate(() => socket.destroy());
  });
  const connection = new Connection();
  connection.on("error", () => {});
  server.emit("connection", connection);
  connection.push(data);
  for (let round = 0; round < 6 + 4 * seen.length; round++) await tick();
  const ended = connection.destroyed || connection.writableEnded;
  connection.destroy();
  return { seen, refused, ended };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await judge(Buffer.from(JSON.parse(line), "base64"))) + "\n");
}
