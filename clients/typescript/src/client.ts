/** The door to all locks below a prefix in etcd. */

import { acquire, type Wanted } from "./attempt.js";
import { RefusedError } from "./errors.js";
import { Gateway } from "./gateway.js";
import { backtrace, identity, program } from "./identity.js";
import { attributesOf, needOf, type KindOptions } from "./kinds.js";
import { Lock } from "./lock.js";
import { givePeriodBack, takePeriod } from "./periods.js";
import type { Attributes, Holder, Members } from "./record.js";
import { settle, type LockOptions } from "./settings.js";
import { takeAll, type Locks } from "./together.js";
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

/** Options of locks that one holds. */
export type SoleOptions = Omit<LockOptions, keyof KindOptions>;

/** One of several locks, with options of its own. */
export interface OneOfSeveral extends Omit<LockOptions, "wait" | "signal"> { name: string }

/** Options of a job. */
export interface JobOptions extends SoleOptions {
  /** Seconds by which the periods begin later than the multiples of their length. */
  offset?: number;
  /** Gives the period back if the work fails, so that the next call runs it again. */
  backOnError?: boolean;
}

/** Options of a leader. */
export interface LeaderOptions extends Omit<SoleOptions, "alertAfter" | "unlockAfter" | "heartbeat"> {
  /** Seconds that the leadership outlasts the last sign of life. Default 60. */
  life?: number;
  /** Where others reach this process, see {@link Client.leader}. */
  address?: string;
  /** Called before each sign of life. While it resolves to nothing true, none is given. */
  check?: () => unknown;
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
    return this.#take(this.#wanted(name, options));
  }

  #wanted(name: string, options: LockOptions, more: Attributes = {}): Wanted {
    const need = needOf(name, options);
    const { purpose, attributes } = options;
    const all = { ...attributesOf(need), ...more, ...attributes };
    const facts = { members: { ...this.#members, purpose }, backtrace: backtrace(), attributes: all };
    return { k: new Keys(this.#prefix, name), settings: settle(options, need), facts };
  }

  async #take(wanted: Wanted): Promise<Lock> {
    return Lock.of(this.#gateway, wanted, await acquire(this.#gateway, wanted));
  }

  /**
   * Takes several locks, all or none. The options are for all that have none of their own. Up to 24 plain locks are
   * taken in one transaction; more, other kinds, and whatever has to be waited for, one by one in the order of names.
   */
  async lockAll(locks: readonly (string | OneOfSeveral)[], options: LockOptions = {}): Promise<Locks> {
    const wanted = locks.map((one) => {
      const { name, ...own } = typeof one === "string" ? { name: one } : one;
      return this.#wanted(name, { ...options, ...own });
    });
    return takeAll(this.#gateway, wanted, settle(options));
  }

  /**
   * Runs `work` under the lock once in each period of so many seconds over all replicas, and resolves to whether this
   * call did. Periods are multiples of `every` since 1970 in UTC, later by `offset`. false: the period is taken.
   * Rejects with a HeldError if somebody holds the lock: then the period is not used up. Otherwise it is when `work`
   * begins, unless that gives it back.
   */
  async oncePer(
    name: string, every: number, work: (lock: Lock) => unknown, options: JobOptions = {},
  ): Promise<boolean> {
    const { offset = 0, backOnError = false, ...rest } = options;
    const wanted = this.#wanted(name, rest);
    const taken = await takePeriod(this.#gateway, wanted, every, offset);
    if (!taken) return false;
    const failed = () => backOnError && givePeriodBack(this.#gateway, wanted.k, taken);
    await under(Lock.of(this.#gateway, wanted, taken), work, failed);
    return true;
  }

  /** Waits until this process leads. The lock is kept alive until it is released: that resigns. */
  async campaign(name: string, options: LeaderOptions = {}): Promise<Lock> {
    const { life = 60, address, check = () => true, ...rest } = options;
    const own = address === undefined ? {} : { address };
    const wanted = this.#wanted(name, { ...rest, alertAfter: life, unlockAfter: life }, own);
    return this.#take({ ...wanted, settings: { ...wanted.settings, check } });
  }

  /** Who leads: its record has its `address`. undefined if nobody does. */
  async leader(name: string): Promise<Holder | undefined> {
    const keys = new Keys(this.#prefix, name);
    const patience = { until: performance.now() + this.#gateway.timeout * 1000 };
    const r = await this.#gateway.transact("survey", keys, { lock: name, uuid: "" }, patience);
    if (r.error) throw r.error;
    return r.holders?.whole;
  }

  /**
   * Runs `work` while it holds the lock, and returns what that returns. Rejects as {@link Client.lock} does, with what
   * `work` rejects with, or with a LostError if the lock was lost while it ran.
   */
  with<T>(name: string, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  with<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  async with<T>(name: string, ...rest: unknown[]): Promise<T> {
    const work = rest.pop() as (lock: Lock) => T | Promise<T>;
    return under(await this.lock(name, rest[0] as LockOptions | undefined), work);
  }
}

/** Runs work while the lock is held, and releases it; after an error, `failed` comes first. */
async function under<T>(lock: Lock, work: (lock: Lock) => T | Promise<T>, failed?: () => unknown): Promise<T> {
  let result: T;
  try {
    result = await work(lock);
  } catch (error) {
    await failed?.();
    await lock.release().catch(() => undefined);
    throw lock.lost && error instanceof Error && error.name === "AbortError" ? lock.signal.reason : error;
  }
  await lock.release();
  return result;
}
