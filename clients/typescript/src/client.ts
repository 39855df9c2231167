/** The door to all locks below a prefix in etcd. */

import { acquire } from "./acquire.js";
import { RefusedError } from "./errors.js";
import { Gateway } from "./gateway.js";
import { backtrace, identity, program } from "./identity.js";
import { Lock } from "./lock.js";
import type { Members } from "./record.js";
import { settle, type LockOptions } from "./settings.js";
import { Keys } from "./transactions.js";

/** Options of all locks of a client. */
export interface ClientOptions {
  /** The program or service that holds the locks. Default: the name of the running program. */
  owner?: string;
  /** Where the locks live in etcd. Default `/mutexes/`. */
  prefix?: string;
  /** Name and password of an etcd user. */
  user?: string;
  password?: string;
  /** PEM file of the authority that signed etcd's certificates. Default: those of Node. */
  ca?: string;
  /** PEM files of a client certificate and its key. */
  cert?: string;
  key?: string;
  /** Seconds that a call with `wait: 0` may take, and any other request before it is sent again. Default 5. */
  timeout?: number;
  /**
   * Releases what this process holds, and leaves all queues, when it ends by exit, by an error that nobody catches, or
   * by a SIGTERM, SIGINT or SIGHUP for which it has no handler. It takes 2 s at most. Default true.
   */
  releaseAtExit?: boolean;
}

/** Takes locks. One client serves a whole process; it has no connection that would have to be closed. */
export class Client {
  readonly #gateway: Gateway;
  readonly #prefix: string;
  readonly #members: Members;

  /** `endpoints` are URLs of members of one etcd, such as `http://127.0.0.1:2379`. Nothing is sent yet. */
  constructor(endpoints: string | readonly string[], options: ClientOptions = {}) {
    const { owner = program(), prefix = "/mutexes/", timeout = 5, releaseAtExit = true } = options;
    const { user = "", password = "", ca = "", cert = "", key = "" } = options;
    if (!(timeout > 0 && timeout <= 60)) throw new RefusedError(`timeout is ${timeout} s, want 60 s or less`);
    const connection = { endpoints: [endpoints].flat(), user, password, ca, cert, key };
    this.#gateway = new Gateway({ ...connection, timeout, releaseAtExit });
    this.#prefix = prefix.endsWith("/") ? prefix : prefix + "/";
    this.#members = { owner, ...identity() };
  }

  /**
   * Takes the lock. Rejects with a HeldError that says who holds it (WaitTimeoutError when the wait is over), a
   * RefusedError, an UnavailableError, or the reason of `options.signal`. Release it, or take it with `await using`.
   */
  async lock(name: string, options: LockOptions = {}): Promise<Lock> {
    const { purpose, attributes = {} } = options;
    const facts = { members: { ...this.#members, purpose }, backtrace: backtrace(), attributes };
    const keys = new Keys(this.#prefix, name);
    const settings = settle(options);
    return Lock.of(this.#gateway, keys, settings, await acquire(this.#gateway, keys, settings, facts));
  }

  /**
   * Runs `work` while it holds the lock, and returns what that returns. Rejects as {@link Client.lock} does, with what
   * `work` rejects with, or with a LostError if the lock was lost while it ran.
   */
  with<T>(name: string, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  with<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  async with<T>(name: string, ...rest: unknown[]): Promise<T> {
    const work = rest.pop() as (lock: Lock) => T | Promise<T>;
    const lock = await this.lock(name, rest[0] as LockOptions | undefined);
    let result: T;
    try {
      result = await work(lock);
    } catch (error) {
      await lock.release().catch(() => undefined);
      throw lock.lost && error instanceof Error && error.name === "AbortError" ? lock.signal.reason : error;
    }
    await lock.release();
    return result;
  }
}
