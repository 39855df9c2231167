/** The entry point to all locks below a prefix in etcd. */

import { acquire, type Wanted } from "./attempt.js";
import { stayAlive } from "./clock.js";
import { RefusedError } from "./errors.js";
import { Gateway } from "./gateway.js";
import { adopt, reserve, type Reservation } from "./handover.js";
import { backtrace, identity, program } from "./identity.js";
import { attributesOf, needOf, type KindOptions } from "./kinds.js";
import { Lock } from "./lock.js";
import { giveTickBack, periods, scheduled, takeTick, type Ticks } from "./periods.js";
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
  /** PEM file of the CA that signed etcd's certificates. Default: Node's CAs. */
  ca?: string;
  /** PEM files of a client certificate and its key. */
  cert?: string;
  key?: string;
  /** Seconds that a call with `wait: 0` may take, and other requests before they are sent again. Default 5. */
  timeout?: number;
  /**
   * Releases all locks and leaves all queues when the process exits, also after an uncaught error, or gets a SIGTERM,
   * SIGINT or SIGHUP without a handler. This takes 2 s at most. Default true.
   */
  releaseAtExit?: boolean;
}

/** Options of plain locks, which have one holder. */
export type SoleOptions = Omit<LockOptions, keyof KindOptions>;

/** One of several locks, with options of its own. */
export interface OneOfSeveral extends Omit<LockOptions, "wait" | "signal"> { name: string }

/** Options of a job. */
export interface JobOptions extends SoleOptions {
  /** Seconds by which the periods start later than the multiples of their length. */
  offset?: number;
  /** Gives the period or tick back if the work fails, so that the next call runs it. */
  retryOnError?: boolean;
}

/** Options of a reservation. */
export type ReserveOptions = Pick<LockOptions, "wait" | "signal" | "attributes" | keyof KindOptions>;

/** Options of a leader. */
export interface LeaderOptions extends Omit<SoleOptions, "alertAfter" | "autoUnlockAfter" | "heartbeat"> {
  /** Seconds for which leadership outlasts the last sign of life. Default 60. */
  life?: number;
  /** Where others reach this process, see {@link Client.leader}. */
  address?: string;
  /** Called before each sign of life. None is given unless it resolves to a truthy value. */
  check?: () => unknown;
}

/** Takes locks. One client serves a whole process; it does not need to be closed. */
export class Client {
  readonly #gateway: Gateway;
  readonly #prefix: string;
  readonly #members: Members;

  /** `endpoints` are URLs of members of one etcd cluster, such as `http://127.0.0.1:2379`. Nothing is sent yet. */
  constructor(endpoints: string | readonly string[], options: ClientOptions = {}) {
    const { owner = program(), prefix = "/mutexes/", timeout = 5, releaseAtExit = true } = options;
    const { user = "", password = "", ca = "", cert = "", key = "" } = options;
    if (!(timeout > 0 && timeout <= 60)) throw new RefusedError(`timeout is ${timeout} s; want 60 s or less`);
    const connection = { endpoints: [endpoints].flat(), user, password, ca, cert, key };
    this.#gateway = new Gateway({ ...connection, timeout, releaseAtExit });
    this.#prefix = prefix.endsWith("/") ? prefix : prefix + "/";
    this.#members = { owner, ...identity() };
  }

  /**
   * Takes the lock. Rejects with a HeldError that says who holds it (a WaitTimeoutError after a wait), a RefusedError,
   * an UnavailableError, or the reason of `options.signal`. Release the lock, or take it with `await using`.
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
   * Takes several locks, all or none. The options apply to locks without their own. Up to 24 plain locks are taken in
   * one transaction; more, or other kinds, or if one is held, one by one in the order of their names.
   */
  async lockAll(locks: readonly (string | OneOfSeveral)[], options: LockOptions = {}): Promise<Locks> {
    const wanted = locks.map((one) => {
      const { name, ...own } = typeof one === "string" ? { name: one } : one;
      return this.#wanted(name, { ...options, ...own });
    });
    return takeAll(this.#gateway, wanted, settle(options));
  }

  /**
   * Runs `work` under the lock once per period of `every` seconds among all replicas. Resolves to whether this call ran
   * it: false if the period is taken. Periods are multiples of `every` since 1970 in UTC, shifted by `offset`. Rejects
   * with a HeldError if the lock is held, or with a LostError if the answer came after the hold; neither uses up the
   * period. Otherwise `work` uses it up when it begins, unless `retryOnError` gives it back.
   */
  async oncePer(
    name: string, every: number, work: (lock: Lock) => unknown, options: JobOptions = {},
  ): Promise<boolean> {
    const { offset = 0, ...rest } = options;
    return this.#once(name, periods(every, offset), work, rest);
  }

  /**
   * Runs `work` under the lock once for this tick of a schedule, and for no earlier one afterwards. `tick` is the time
   * that the run is for: take it from the schedule, not from the clock, so that all replicas name the same. Otherwise
   * like {@link Client.oncePer}.
   */
  async onceAt(
    name: string, tick: Date, work: (lock: Lock) => unknown, options: Omit<JobOptions, "offset"> = {},
  ): Promise<boolean> {
    return this.#once(name, scheduled(tick), work, options);
  }

  async #once(
    name: string, ticks: Ticks, work: (lock: Lock) => unknown, options: Omit<JobOptions, "offset">,
  ): Promise<boolean> {
    const { retryOnError = false, ...rest } = options;
    const wanted = this.#wanted(name, rest);
    mustRunAtOnce(work);
    const taken = await takeTick(this.#gateway, wanted, ticks);
    if (!taken) return false;
    let hasBegun = false;
    const begin = (lock: Lock) => {
      lock.signal.throwIfAborted();
      hasBegun = true;
      return work(lock);
    };
    const failed = () => (retryOnError || !hasBegun) && giveTickBack(this.#gateway, wanted.k, taken);
    await under(Lock.of(this.#gateway, wanted, taken), begin, failed);
    return true;
  }

  /**
   * Takes the lock for that many seconds and leaves it held, even after this process has ended. Another process
   * releases or extends it: see {@link Client.adopt}. Otherwise it is auto-unlocked when its time is up. `reason` is
   * the purpose of the record.
   */
  async reserve(name: string, reason: string, seconds: number, options: ReserveOptions = {}): Promise<Reservation> {
    if (!reason) throw new RefusedError("a reservation needs a reason: no process can explain what it is for");
    const all = { ...options, purpose: reason, alertAfter: seconds, autoUnlockAfter: seconds };
    const wanted = this.#wanted(name, all, { reserved: true });
    wanted.facts.members.detached = true;
    return reserve(this.#gateway, wanted);
  }

  /**
   * Resolves to the lock with a hold that another process took: `(await adopt(name, uuid)).release()` releases it. From
   * then on the end of that process proves nothing. `alive` extends the hold by as much as its last writer did. Rejects
   * with a LostError if the lock has another holder, or none.
   */
  async adopt(name: string, uuid: string, options: Pick<LockOptions, "onLost" | "onAsked"> = {}): Promise<Lock> {
    return adopt(this.#gateway, new Keys(this.#prefix, name), uuid, options);
  }

  /**
   * Waits until this process leads. The lock is kept alive until it is released, which resigns. Until then, or until
   * the lock is lost, it keeps the process alive.
   */
  async campaign(name: string, options: LeaderOptions = {}): Promise<Lock> {
    const { life = 60, address, check = () => true, ...rest } = options;
    const own = address === undefined ? {} : { address };
    const wanted = this.#wanted(name, { ...rest, alertAfter: life, autoUnlockAfter: life }, own);
    return this.#take({ ...wanted, settings: { ...wanted.settings, check } });
  }

  /** The leader's record, with its `address`; undefined if there is no leader. */
  async leader(name: string): Promise<Holder | undefined> {
    const keys = new Keys(this.#prefix, name);
    const patience = { until: performance.now() + this.#gateway.timeout * 1000 };
    const r = await this.#gateway.transact("survey", keys, { lock: name, uuid: "" }, patience);
    if (r.error) throw r.error;
    return r.holders?.whole;
  }

  /**
   * Runs `work` under the lock and resolves to its result. Rejects like {@link Client.lock}, with the error of `work`,
   * or with a LostError if the lock was lost meanwhile. Rejects with a RefusedError if `work` is or returns a
   * generator, or returns an array with promises: it would run, or run on, without the lock.
   */
  with<T>(name: string, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  with<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T>;
  async with<T>(name: string, ...rest: unknown[]): Promise<T> {
    const work = rest.pop() as (lock: Lock) => T | Promise<T>;
    mustRunAtOnce(work);
    return under(await this.lock(name, rest[0] as LockOptions | undefined), work);
  }
}

/** Runs work while the lock is held, then releases it; after an error, calls `failed` first. */
async function under<T>(lock: Lock, work: (lock: Lock) => T | Promise<T>, failed?: () => unknown): Promise<T> {
  const leave = stayAlive(); // even if the work only waits for the lock's signal
  try {
    return await runAndRelease(lock, work, failed);
  } finally {
    leave();
  }
}

async function runAndRelease<T>(lock: Lock, work: (lock: Lock) => T | Promise<T>, failed?: () => unknown): Promise<T> {
  let result: T;
  try {
    result = await work(lock);
    mustBeDone(result);
  } catch (error) {
    await failed?.();
    await lock.release().catch(() => undefined);
    throw lock.lost && error instanceof Error && error.name === "AbortError" ? lock.signal.reason : error;
  }
  await lock.release();
  return result;
}

const advice = "iterate it, or await Promise.all, inside of the work";

/** Refuses a function that returns before its body has run. */
function mustRunAtOnce(work: unknown) {
  const kind = /^\[object (Async)?GeneratorFunction\]$/.exec(Object.prototype.toString.call(work));
  if (!kind) return;
  const what = kind[1] ? "an async generator function" : "a generator function";
  throw new RefusedError(`work is ${what}, which would run without the lock: ${advice}`);
}

/** Refuses a result that has yet to run, or may still run. */
function mustBeDone(result: unknown) {
  const tag = Object.prototype.toString.call(result);
  const kinds: [string, boolean][] = [
    ["a generator", tag === "[object Generator]"],
    ["an async generator", tag === "[object AsyncGenerator]"],
    ["an array of promises", Array.isArray(result) && result.some((one) => one instanceof Promise)],
  ];
  const lazy = kinds.find(([, is]) => is);
  if (lazy) throw new RefusedError(`work returned ${lazy[0]}, which would run without the lock: ${advice}`);
}
