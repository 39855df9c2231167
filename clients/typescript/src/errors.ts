/** What a lock can fail with. Every message is one line that names the lock, and safe to print. */

import { describeDelay, type Delay, type Ending } from "./documents.js";
import { describe, plain, visible, type Holder } from "./record.js";

/** What all errors of locks have in common. */
export class MutexError extends Error {}

/** Somebody else holds the lock, or others wait for it. */
export class HeldError extends MutexError {
  override readonly name: string = "HeldError";

  readonly lock: string;
  /** The record of the holder; undefined if nobody holds the lock, and others are waiting for it or it is delayed. */
  readonly holder: Holder | undefined;
  /** How many wait in the queue, not counting this call. */
  readonly waiting: number;
  /** The lock delay that keeps the lock back although nobody holds it. */
  readonly delay: Delay | undefined;
  /** All holders of a semaphore or a read-write lock, the oldest first. */
  readonly holders: readonly Holder[];

  constructor(lock: string, holders: readonly Holder[], waiting: number, delay: Delay | undefined, prefix = "") {
    const [holder] = holders;
    const queue = waiting === 1 ? "1 is waiting" : `${waiting} are waiting`;
    super(prefix + (holder
      ? `lock ${plain(lock)} is held by ${describe(holder)}` +
        (holders.length > 1 ? ` and ${holders.length - 1} more` : "")
      : `nobody holds lock ${plain(lock)}${delay ? `, but there is ${describeDelay(delay)}` : ""}`) +
      (waiting || !(holder ?? delay) ? `; ${queue}` : ""));
    [this.lock, this.holder, this.waiting, this.delay, this.holders] = [lock, holder, waiting, delay, holders];
  }
}

/** The time to wait ran out. The lock is as it was. */
export class WaitTimeoutError extends HeldError {
  override readonly name = "WaitTimeoutError";

  constructor(lock: string, holders: readonly Holder[], waiting: number, delay: Delay | undefined, seconds: number) {
    super(lock, holders, waiting, delay, `gave up after ${seconds} s: `);
  }
}

/**
 * Why a hold ended. `deadline`: its time ran out, by this machine's clock, before etcd confirmed an extension;
 * `forced`: an operator ended it; `auto_unlocked`, `abandoned`: the unlocker did; `deleted`: its keys are gone, and
 * nobody left a note; `replaced`: another holds the lock. Later versions may have more words.
 */
export type Reason = keyof typeof sentences | (string & Record<never, never>);

/** The lock is no longer held, or must not be relied on any more. Stop the work. */
export class LostError extends MutexError {
  override readonly name = "LostError";

  readonly lock: string;
  readonly reason: Reason;
  /** Who ended the hold, and why, if it was written down. Characters that nobody sees are escaped. */
  readonly by: string | undefined;
  readonly why: string | undefined;

  constructor(lock: string, reason: Reason, { by, why }: Partial<Ending> = {}) {
    const sentence = Object.hasOwn(sentences, reason) ? sentences[reason as keyof typeof sentences] : plain(reason);
    const note = [by && ` (${plain(by)})`, why && `: ${plain(why)}`].filter(Boolean).join("");
    super(`lock ${plain(lock)} was lost: ${sentence}${note}`);
    [this.lock, this.reason] = [lock, reason];
    [this.by, this.why] = [by, why].map((text) => text && visible(text));
  }
}

const sentences = {
  deadline: "its time ran out before etcd confirmed an extension",
  forced: "an operator unlocked it",
  auto_unlocked: "its time was over, so it was unlocked",
  abandoned: "its process was proven dead, so it was unlocked",
  deleted: "its record was deleted, and nobody left a note",
  replaced: "another holds it",
};

/** The request was wrong, or etcd does not allow it. Trying again changes nothing. */
export class RefusedError extends MutexError {
  override readonly name = "RefusedError";
}

/** etcd did not answer in time. What was asked is undone as soon as etcd can be reached. */
export class UnavailableError extends MutexError {
  override readonly name = "UnavailableError";
}
