/** The door to all locks below a prefix in etcd. */

import { acquire } from "./attempt.js";
import { RefusedError } from "./errors.js";
import { Gateway } from "./gateway.js";
import { backtrace, identity, program } from "./identity.js";
import { attributesOf, needOf, shareName, type KindOptions } from "./kinds.js";
import { Lock } from "./lock.js";
import { takePeriod } from "./periods.js";
import type { Attributes, Facts, Holder, Members } from "./record.js";
import { settle, type LockOptions, type Settings } from "./settings.js";
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
    const need = needOf(name, options);
    return this.#lock(name, settle(options, need), this.#facts(options, attributesOf(need)));
  }

  #facts({ purpose, attributes = {} }: Pick<LockOptions, "purpose" | "attributes">, more: Attributes = {}): Facts {
    return { members: { ...this.#members, purpose }, backtrace: backtrace(), attributes: { ...more, ...attributes } };
  }

  async #lock(name: string, settings: Settings, facts: Facts): Promise<Lock> {
    const keys = new Keys(this.#prefix, name);
    const hold = await acquire(this.#gateway, keys, settings, facts);
    return Lock.of(this.#gateway, new Keys(this.#prefix, shareName(name, hold.share)), settings, hold);
  }

  /** Takes several locks, all or none: in one transaction, or else in the order of their names. */
  lockAll(names: readonly string[], options: SoleOptions = {}): Promise<Locks> {
    return takeAll(this.#gateway, this.#prefix, names, settle(options), this.#facts(options));
  }

  /**
   * Runs `work` under the lock once in each period of so many seconds over all replicas, and resolves to whether this
   * call did. Periods are multiples of `every` since 1970 in UTC, later by `offset`. false: the period is taken.
   * Rejects with a HeldError if somebody holds the lock: then the period is not used up. Otherwise it is when `work`
   * begins.
   */
  async oncePer(
    name: string, every: number, work: (lock: Lock) => unknown, options: SoleOptions & { offset?: number } = {},
  ): Promise<boolean> {
    const keys = new Keys(this.#prefix, name);
    const settings = settle(options);
    const facts = this.#facts(options);
    const hold = await takePeriod(this.#gateway, keys, settings, facts, every, options.offset ?? 0);
    if (!hold) return false;
    await under(Lock.of(this.#gateway, keys, settings, hold), work);
    return true;
  }

  /** Waits until this process leads. The lock is kept alive until it is released: that resigns. */
  campaign(name: string, options: LeaderOptions = {}): Promise<Lock> {
    const { life = 60, address, check = () => true, ...rest } = options;
    const settings = settle({ ...rest, alertAfter: life, unlockAfter: life });
    return this.#lock(name, { ...settings, check }, this.#facts(options, address === undefined ? {} : { address }));
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

/** Runs work while the lock is held, and releases it. */
async function under<T>(lock: Lock, work: (lock: Lock) => T | Promise<T>): Promise<T> {
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
