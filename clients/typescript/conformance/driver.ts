/** The driver of this client for the conformance suite: JSON objects, one a line, on stdin and stdout. */

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, HeldError, Lock, LostError, RefusedError, UnavailableError, WaitTimeoutError } from "../src/index.js";
import { readDelay, readEnding, readExtension, readRequest } from "../src/documents.js";
import type { KindOptions, LockOptions, Locks } from "../src/index.js";
import { version } from "../src/identity.js";
import { allOf, delayFor } from "../src/kinds.js";
import { asText, nameOf, parseTime, readRecord, segment } from "../src/record.js";
import { bodyOf } from "../src/shares.js";
import { Keys, type Answer, type Input, type Step } from "../src/transactions.js";
import { verdictOf } from "../src/verdicts.js";

interface Request extends Record<string, unknown> { id: number; do: string }

const kinds = ["semaphore", "read-write", "together", "once", "back", "leader", "reserve"];

const locks = new Map<number, Lock | Locks>();
const acquiring = new Map<number, AbortController>();
let client: Client | undefined;
let made = 0;

/** Writes one object. A token goes out as a JSON number with all its digits. */
function write(answer: object, token?: bigint) {
  const line = JSON.stringify(answer);
  process.stdout.write((token === undefined ? line : `${line.slice(0, -1)},"token":${token}}`) + "\n");
}

/** Members that were given. JSON's null is "no limit" or "not given", which is undefined here. */
function given(request: Record<string, unknown>, ...names: string[]): Record<string, never> {
  const all = names.map((name) => [name.replace(/_./g, (c) => c.slice(1).toUpperCase()), request[name]] as const);
  return Object.fromEntries(all.filter(([, value]) => value !== undefined && value !== null)) as Record<string, never>;
}

/** What is wanted of a lock, or of one of several. */
function kindOf(request: Record<string, unknown>): KindOptions {
  const kind = asText(request.kind);
  if (kind === "semaphore") return { semaphore: Number(request.limit), ...given(request, "weight") };
  return kind ? { [kind]: true } : {};
}

/** Takes a lock, or several together. */
function take(client: Client, request: Request, options: LockOptions): Promise<Lock | Locks> {
  const name = String(request.name);
  if (request.life) return client.campaign(name, { ...given(request, "wait", "life", "address") });
  const all = { ...options, ...kindOf(request) };
  if (!request.names) return client.lock(name, all);
  const own = (request.own ?? {}) as Record<string, Record<string, unknown>>;
  return client.lockAll((request.names as string[]).map((name) => ({ name, ...kindOf(own[name] ?? {}) })), all);
}

const lockOf = (request: Request) => {
  const lock = locks.get(request.lock as number);
  if (!lock) throw new Error(`there is no lock ${String(request.lock)}`);
  return lock;
};

const bytesOf = (request: Request, name: string) => {
  const encoded = asText(request[name + "_base64"]);
  return encoded === undefined ? Buffer.from(String(request[name])) : Buffer.from(encoded, "base64");
};

/** What is read of the documents of others. */
const documents: Record<string, (request: Request, value: Buffer) => object | undefined> = {
  request: ({ uuid, token }, value) => readRequest(value, String(uuid), String(token)),
  extension: ({ uuid, token }, value) => readExtension(value, String(uuid), String(token)),
  ending: ({ token }, value) => readEnding(value, String(token)),
  delay: ({ lock }, value) => readDelay(value, String(lock)),
};

const textOf = (request: Request, name: string) => {
  const encoded = asText(request[name + "_base64"]);
  if (encoded === undefined) return String(request[name]);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(encoded, "base64"));
  } catch {
    throw new RefusedError(`${name} is not UTF-8`);
  }
};

/** The keys of what a step of the test transactions is about. */
const keysOf = (input: Input) => new Keys("/mutexes/", input.locks?.[0]?.lock ?? input.lock);

const commands: Record<string, (request: Request) => Promise<object> | object> = {
  info: () => ({ client: `typescript/${version}`, levels: ["basic", "queue", "kinds"], kinds }),

  open: (request) => {
    const endpoints = request.endpoints as string[];
    const options = given(request, "owner", "prefix", "user", "password", "ca", "cert", "key", "timeout");
    client = new Client(endpoints, options);
    return {};
  },

  acquire: async (request) => {
    if (!client) throw new Error("acquire before open");
    const stop = new AbortController();
    acquiring.set(request.id, stop);
    const number = ++made;
    const options: LockOptions = {
      ...given(request, "wait", "alert_after", "auto_unlock_after", "purpose", "attributes", "heartbeat"),
      signal: stop.signal,
      onLost: (lost) => write({ event: "lost", lock: number, reason: lost.reason }),
      onAsked: ({ by, reason }) => write({ event: "asked", lock: number, by, reason }),
    };
    try {
      const lock = await take(client, request, options);
      const first = lock instanceof Lock ? lock : lock.all[0];
      locks.set(number, lock);
      write({ id: request.id, lock: number, uuid: first?.uuid }, first?.token);
      return {};
    } catch (error) {
      if (stop.signal.aborted && error === stop.signal.reason) return { error: "cancelled", message: "given up" };
      throw error;
    } finally {
      acquiring.delete(request.id);
    }
  },

  reserve: async (request) => {
    const seconds = Number(request.auto_unlock_after);
    const left = await client?.reserve(String(request.name), String(request.purpose), seconds, { wait: 0 });
    return { name: left?.name, uuid: left?.uuid, token: Number(left?.token) };
  },

  adopt: async (request) => {
    const lock = await client?.adopt(String(request.name), String(request.uuid));
    if (!lock) throw new Error("adopt before open");
    locks.set(++made, lock);
    return { lock: made, uuid: lock.uuid, token: Number(lock.token) };
  },

  once: async (request) => {
    const failed = new Error("as it was asked to");
    let token = 0n;
    const work = async (lock: Lock) => {
      token = lock.token;
      await sleep(Number(request.hold) * 1000);
      if (request.fails) throw failed;
    };
    const durations = given(request, "alert_after", "auto_unlock_after");
    const options = { ...durations, retryOnError: Boolean(request.fails) };
    const name = String(request.name);
    const ran = typeof request.tick === "number"
      ? client?.onceAt(name, new Date(request.tick * 1000), work, options)
      : client?.oncePer(name, Number(request.every), work, { ...options, ...given(request, "offset") });
    const didRun = await ran?.catch((error: unknown) => {
      if (error === failed) return true;
      throw error;
    });
    return { ran: didRun, token: Number(token) };
  },

  alive: async (request) => {
    await lockOf(request).alive(asText(request.progress) ?? "", given(request, "alert_after", "auto_unlock_after"));
    return {};
  },

  release: async (request) => {
    await lockOf(request).release();
    return {};
  },

  check: (request) => {
    const lock = lockOf(request);
    const { lost = null, asked } = lock instanceof Lock ? lock : lock.all[0] ?? {};
    return { lost, asked: asked ? { by: asked.by, reason: asked.reason } : null };
  },

  cancel: (request) => {
    acquiring.get(request.request as number)?.abort();
    return {};
  },

  end: (request) => {
    setImmediate(() => { // outside of what answers errors
      if (request.how === "error") throw new Error("the end that was asked for");
      process.exit(0);
    });
    return {};
  },

  segment: (request) => ({ segment: segment(textOf(request, "name")) }),
  name: (request) => ({ name: nameOf(String(request.segment)) }),

  time: (request) => {
    const time = parseTime(String(request.text));
    if (!time) throw new RefusedError("no time");
    return { seconds: String(time.seconds), nanoseconds: time.nanoseconds };
  },

  decode: (request) => {
    const given = request.fields as { name: string; value?: string; value_base64?: string; mod_revision?: number }[];
    const read = readRecord(given.map((field) => ({
      name: field.name, modified: BigInt(field.mod_revision ?? 7),
      value: Buffer.from(field.value_base64 ?? field.value ?? "", field.value_base64 === undefined ? "utf8" : "base64"),
    })), 7n);
    const { uuid, owner, hostname, purpose } = read;
    const time = (at: Date | undefined) => at && String(at.getTime() / 1000).padStart(10, "0");
    return {
      decoded: {
        uuid, owner, hostname, purpose, alert_at: time(read.alertAt), auto_unlock_at: time(read.unlockAt),
        locked_at: time(read.lockedAt),
      },
      malformed: !uuid || !read.alertAt || !read.unlockAt,
    };
  },

  document: (request) => {
    const read = documents[String(request.kind)];
    const decoded = read?.(request, bytesOf(request, "value"));
    if (!read) return { error: "unsupported" };
    return { decoded: decoded ? { ...decoded, at: undefined, until: undefined } : null };
  },

  transaction: (request) => {
    const input = request.input as Input;
    return { body: bodyOf(request.step as Step, keysOf(input), input) };
  },

  verdict: (request) => {
    const input = request.input as Input;
    const answer = request.answer as Answer;
    const { holders, ...verdict } = verdictOf(request.step as Step, keysOf(input), input, answer);
    const said = { ...verdict, lock: undefined, fields: undefined }; // these of an answer are other things
    if (!holders || said.verdict !== "refused") return said;
    return { ...said, holder: allOf(holders)[0]?.uuid ?? null, delayed: delayFor(holders, input) !== undefined };
  },
};

function failure(error: unknown): object {
  const { message } = error as Error;
  if (error instanceof HeldError) {
    const { uuid, owner, hostname, purpose } = error.holder ?? {};
    const holder = error.holder ? { uuid, owner, hostname, purpose } : null;
    const { waiting, delay } = error;
    const word = error instanceof WaitTimeoutError ? "timeout" : "held";
    return { error: word, message, holder, waiting, delayed: delay !== undefined };
  }
  if (error instanceof LostError) return { error: "lost", reason: error.reason, message };
  if (error instanceof RefusedError) return { error: "refused", message };
  if (error instanceof UnavailableError) return { error: "unavailable", message };
  return { error: "failed", message: String(error) };
}

async function serve(line: string) {
  const request = JSON.parse(line) as Request;
  const command = commands[request.do];
  try {
    const answer = command ? await command(request) : { error: "unsupported" };
    if (request.do !== "acquire" || Object.keys(answer).length) write({ id: request.id, ...answer });
  } catch (error) {
    write({ id: request.id, ...failure(error) });
  }
}

createInterface({ input: process.stdin })
  .on("line", (line) => void serve(line))
  .on("close", () => {
    process.removeAllListeners("exit"); // as a crash: nothing is released
    process.exit(0);
  });
