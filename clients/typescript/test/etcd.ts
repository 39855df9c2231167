/** A real etcd for tests, a plain door to it, and a proxy that loses what a test wants lost. */

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text as textOf } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** The program test/etcdserver, which `make client-typescript` builds. */
const program = process.env.ETCDSERVER ?? join(__dirname, "..", "etcdserver");

export class Etcd {
  private constructor(
    private process: ChildProcess, readonly endpoint: string,
    private readonly data: string, private readonly options: string[],
  ) {}

  static async start(...options: string[]) {
    const data = mkdtempSync(join(tmpdir(), "clustermutex-"));
    const [child, endpoint] = await run("-data", data, ...options);
    return new Etcd(child, endpoint, data, options);
  }

  async stop() {
    await this.end();
    rmSync(this.data, { recursive: true, force: true });
  }

  /** Ends the process without a goodbye, and runs another on the same data and port. */
  async restart() {
    await this.end();
    [this.process] = await run("-data", this.data, "-listen", new URL(this.endpoint).host, ...this.options);
  }

  private async end() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill("SIGKILL");
    await once(this.process, "exit");
  }

  /** Sends any request to the gateway, past the client. */
  async post(path: string, body: object, token = ""): Promise<Record<string, unknown>> {
    const headers = token ? { authorization: token } : {};
    const response = await fetch(this.endpoint + path, { method: "POST", body: JSON.stringify(body), headers });
    return await response.json() as Record<string, unknown>;
  }

  /** All keys below a prefix and their values. */
  async read(prefix: string): Promise<Record<string, string>> {
    const range = { key: encode(prefix), range_end: encode(prefix.slice(0, -1) + "0") };
    const { kvs = [] } = await this.post("/v3/kv/range", range) as { kvs?: { key: string; value?: string }[] };
    return Object.fromEntries(kvs.map((kv) => [decode(kv.key), decode(kv.value)]));
  }

  async put(...pairs: [string | Buffer, string | Buffer][]) {
    await this.post("/v3/kv/txn", {
      success: pairs.map(([key, value]) => ({ request_put: { key: encode(key), value: encode(value) } })),
    });
  }

  async remove(prefix: string, ...put: [string, string][]) {
    const range = { key: encode(prefix), range_end: encode(prefix.slice(0, -1) + "0") };
    await this.post("/v3/kv/txn", {
      success: [
        { request_delete_range: range },
        ...put.map(([key, value]) => ({ request_put: { key: encode(key), value: encode(value) } })),
      ],
    });
  }
}

async function run(...options: string[]): Promise<[ChildProcess, string]> {
  const child = spawn(program, options, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout });
  const first = once(lines, "line") as Promise<[string]>;
  const end = once(child, "exit").then(([code]) => { throw new Error(`${program} ended with ${String(code)}`); });
  end.catch(() => undefined);
  const [endpoint] = await Promise.race([first, end]);
  return [child, endpoint];
}

export const encode = (text: string | Buffer) => Buffer.from(text).toString("base64");
const decode = (text = "") => Buffer.from(text, "base64").toString();

/** What happens to a request: it passes, is lost, or its answer is. */
type Fate = "pass" | "lose" | "mute";

/** An HTTP proxy in front of an etcd. */
export class Proxy {
  /** Decides over each request, by its path and the keys and values in its body, decoded. */
  fate: (path: string, body: string) => Fate = () => "pass";
  private readonly server: http.Server;
  private readonly agent = new http.Agent({ keepAlive: false });

  private constructor(target: string) {
    this.server = http.createServer((request, response) => void this.serve(target, request, response));
  }

  static async start(target: string) {
    const proxy = new Proxy(target);
    proxy.server.listen(0, "127.0.0.1");
    await once(proxy.server, "listening");
    return proxy;
  }

  get endpoint() { return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`; }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }

  /** From now on nothing passes, and connections end. */
  cut() {
    this.fate = () => "lose";
    this.server.closeAllConnections();
  }

  private async serve(target: string, request: http.IncomingMessage, response: http.ServerResponse) {
    const url = new URL(request.url ?? "", target);
    const body = await textOf(request).catch(() => "");
    const readable = body.replace(/"([A-Za-z0-9+/]{4,}=*)"/g, (all, text: string) => {
      const plain = decode(text);
      return plain.startsWith("/mutexes/") || plain.length > 30 ? JSON.stringify(plain) : all;
    });
    const fate = this.fate(url.pathname, readable);
    if (fate === "lose") return request.socket.destroy();
    const options = { method: "POST", headers: request.headers, agent: this.agent };
    const onward = http.request(url, options, (answer) => {
      if (fate === "mute") {
        answer.resume().on("end", () => request.socket.destroy());
        return;
      }
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      answer.pipe(response).on("close", () => answer.destroy());
      answer.on("error", () => response.destroy());
    });
    onward.on("error", () => request.socket.destroy());
    onward.end(body);
  }
}

/** Waits for a condition, for half a minute. */
export async function eventually<T>(
  what: string, condition: () => T | Promise<T>,
): Promise<Exclude<T, false | undefined>> {
  const end = Date.now() + 30_000;
  for (;;) {
    const value = await condition();
    if (value) return value as Exclude<T, false | undefined>;
    if (Date.now() > end) throw new Error(`not within 30 s: ${what}`);
    await sleep(20);
  }
}
