/** The errors of locks. Every message is one line that names the lock and is safe to print. */

import { describeDelay, type Delay, type Ending } from "./documents.js";
import { describe, inWords, plain, visible, type Holder } from "./record.js";

/** The base class of all errors of locks. */
export class MutexError extends Error {}

/** The lock is held, or others wait for it. */
export class HeldError extends MutexError {
  override readonly name: string = "HeldError";

  readonly lock: string;
  /** The record of the holder; undefined if the lock is free but others wait for it or it is delayed. */
  readonly holder: Holder | undefined;
  /** How many wait in the queue, not counting this call. */
  readonly waiting: number;
  /** The lock delay, if the lock is free but must not be taken yet. */
  readonly delay: Delay | undefined;
  /** All holders of a semaphore or a read-write lock, the oldest first. */
  readonly holders: readonly Holder[];

  constructor(
    lock: string, holders: readonly Holder[], waiting: number, delay: Delay | undefined, stays = false, prefix = "",
  ) {
    const [holder] = holders;
    const queue = waiting === 1 ? "1 is waiting" : `${waiting} are waiting`;
    super(prefix + (holder
      ? `lock ${plain(lock)} is held by ${describe(holder)}` +
        (holders.length > 1 ? ` and ${holders.length - 1} more` : "") +
        (stays ? "; no unlocker is running, so nothing removes it" : "")
      : `nobody holds lock ${plain(lock)}${delay ? `, but there is ${describeDelay(delay)}` : ""}`) +
      (waiting || !(holder ?? delay) ? `; ${queue}` : ""));
    [this.lock, this.holder, this.waiting, this.delay, this.holders] = [lock, holder, waiting, delay, holders];
  }
}

/** The lock was not acquired within the wait. */
export class WaitTimeoutError extends HeldError {
  override readonly name = "WaitTimeoutError";

  constructor(
    lock: string, holders: readonly Holder[], waiting: number, delay: Delay | undefined, stays: boolean,
    seconds: number,
  ) {
    super(lock, holders, waiting, delay, stays, `gave up after ${inWords(seconds)}: `);
  }
}

/**
 * Why a hold ended. `deadline`: its time ran out by this machine's clock before etcd confirmed an extension; `forced`:
 * an operator ended it; `auto_unlocked`, `abandoned`: the unlocker did; `deleted`: its keys were deleted by hand;
 * `replaced`: there is another holder. Later versions may add words.
 */
export type Reason = keyof typeof sentences | (string & Record<never, never>);

/** The lock is no longer held, or can no longer be relied on. Stop the work. */
export class LostError extends MutexError {
  override readonly name = "LostError";

  readonly lock: string;
  readonly reason: Reason;
  /** Who ended the hold, and why, if known. Invisible characters are escaped. */
  readonly by: string | undefined;
  readonly why: string | undefined;

  constructor(lock: string, reason: Reason, { by, why }: Partial<Ending> = {}) {
    const sentence = Object.hasOwn(sentences, reason) ? sentences[reason as keyof typeof sentences] : plain(reason);
    const note = [by && ` (${plain(by)})`, why && `: ${by ? plain(why) : visible(why)}`].filter(Boolean).join("");
    super(`lock ${plain(lock)} was lost: ${sentence}${note}`);
    [this.lock, this.reason] = [lock, reason];
    [this.by, this.why] = [by, why].map((text) => text && visible(text));
  }
}

const sentences = {
  deadline: "its time ran out",
  forced: "an operator unlocked it",
  auto_unlocked: "its time was over, so it was unlocked",
  abandoned: "its process was proven dead, so it was unlocked",
  deleted: "its record was deleted without a note of who did it",
  replaced: "it has another holder",
};

/** Bad input, or a request that etcd does not permit. Retrying will not help. */
export class RefusedError extends MutexError {
  override readonly name = "RefusedError";
}

/** etcd did not answer in time. An acquisition is undone as soon as etcd can be reached. */
export class UnavailableError extends MutexError {
  override readonly name = "UnavailableError";
}
