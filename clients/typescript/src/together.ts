/** Several locks at once, all of them or none. */

import { randomUUID } from "node:crypto";

import { acquire, heldBy } from "./attempt.js";
import { take } from "./cleanup.js";
import { moment } from "./clock.js";
import { HeldError, RefusedError, UnavailableError, type Reason } from "./errors.js";
import type { Gateway } from "./gateway.js";
import { nobody } from "./kinds.js";
import { Lock } from "./lock.js";
import { fields, type Facts } from "./record.js";
import type { Settings } from "./settings.js";
import { Keys } from "./transactions.js";

const most = 24; // as many as fit into one transaction of etcd's

/** Several locks that are held. Each is a lock of its own. */
export class Locks {
  /** In the order of their names. */
  readonly all: readonly Lock[];

  constructor(all: readonly Lock[]) { this.all = all; }

  /** Why one of them is lost; undefined while they are held. */
  get lost(): Reason | undefined { return this.all.find((lock) => lock.lost)?.lost; }

  /** Reports progress for each of them. */
  async alive(progress = ""): Promise<void> { await Promise.all(this.all.map((lock) => lock.alive(progress))); }

  /** Gives all of them back. Rejects as {@link Lock.release} does, for the first. */
  async release(): Promise<void> {
    const done = await Promise.allSettled(this.all.map((lock) => lock.release()));
    for (const one of done) if (one.status === "rejected") throw one.reason;
  }

  /** For `await using`. */
  [Symbol.asyncDispose](): Promise<void> { return this.release(); }
}

interface Wanted { k: Keys; facts: Facts }

/** Takes them in one transaction, or one after the other where that needs a wait. @internal */
export async function takeAll(
  gateway: Gateway, prefix: string, names: readonly string[], settings: Settings, facts: Facts,
): Promise<Locks> {
  if (!names.length || names.length > most || new Set(names).size < names.length) {
    throw new RefusedError(`${names.length} locks, it must be 1 to ${most}, each once`);
  }
  const sorted = [...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const wanted = sorted.map((name) => ({ k: new Keys(prefix, name), facts: withOthers(facts, sorted, name) }));
  try {
    return new Locks(await atOnce(gateway, wanted, settings));
  } catch (error) {
    const mayWait = error instanceof HeldError || error instanceof UnavailableError;
    if (!mayWait || settings.wait === 0) throw error;
  }
  return new Locks(await inOrder(gateway, wanted, settings));
}

async function atOnce(gateway: Gateway, wanted: Wanted[], settings: Settings): Promise<Lock[]> {
  const began = moment();
  const locks = wanted.map(({ k, facts }) => {
    const uuid = randomUUID();
    return { k, lock: k.lock, uuid, fields: fields(uuid, facts, began.wall, settings) };
  });
  const [{ k }] = wanted as [Wanted];
  const until = performance.now() + Math.min(gateway.timeout * 1000, settings.unlockAfter / 3);
  const patience = { until, signal: settings.signal };
  const { token, doubt, lock = k.lock, holders = nobody, handedOver } = await take(gateway, k.prefix, locks, () =>
    gateway.transact("acquire_all", k, { lock: k.lock, uuid: "", locks }, patience));
  if (!token) throw heldBy(lock, {}, { holders, waiting: 0 });
  const hold = { token, began, queued: false, doubt, share: 0, handedOver };
  return locks.map(({ k, uuid }) => Lock.of(gateway, k, settings, { ...hold, uuid }));
}

/** Keeps what it has while it waits for the next. */
async function inOrder(gateway: Gateway, wanted: Wanted[], settings: Settings): Promise<Lock[]> {
  const end = performance.now() + settings.wait;
  const taken: Lock[] = [];
  const stop = new AbortController();
  const signal = settings.signal ? AbortSignal.any([settings.signal, stop.signal]) : stop.signal;
  const done = new AbortController();
  try {
    for (const { k, facts } of wanted) {
      for (const lock of taken) lock.waitsFor(k.lock);
      const left = Math.max(end - performance.now(), 1);
      const hold = await acquire(gateway, k, { ...settings, signal, wait: left }, facts);
      const lock = Lock.of(gateway, k, settings, hold);
      taken.push(lock);
      lock.signal.addEventListener("abort", () => stop.abort(lock.signal.reason));
      void lock.keep(done.signal);
    }
    await Promise.all(taken.map((lock) => lock.alive()));
    return taken;
  } catch (error) {
    await Promise.allSettled(taken.map((lock) => lock.release()));
    throw error;
  } finally {
    done.abort();
  }
}

/** Names in the record of one lock those that are taken with it, as far as there is room. */
function withOthers(facts: Facts, names: string[], name: string): Facts {
  const others = names.filter((other) => other !== name);
  if (!others.length) return facts;
  const all = others.join(", ");
  const together_with = Buffer.byteLength(all) > 1000 ? `${others.length} others` : all;
  return { ...facts, attributes: { together_with, ...facts.attributes } };
}
