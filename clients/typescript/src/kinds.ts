/** Kinds of locks: a plain lock has one holder, a semaphore or a read-write lock may have several. */

import type { Delay } from "./documents.js";
import { RefusedError } from "./errors.js";
import type { Attributes, Holder } from "./record.js";

/** How a caller wants to hold a lock. Without a kind, it is a plain lock. */
export interface Need { kind?: "semaphore" | "shared" | "exclusive"; limit?: number; weight?: number }

/** Options of semaphores and read-write locks. */
export interface KindOptions {
  /** Takes permits of a semaphore with this many in all. All callers should pass the same number. */
  semaphore?: number | undefined;
  /** How many permits to take, all or none. Default 1. */
  weight?: number | undefined;
  /** Reads, together with other readers but no writer. */
  shared?: boolean | undefined;
  /** Writes alone, or takes a whole semaphore. */
  exclusive?: boolean | undefined;
}

/** The holders of a lock at one revision, and the lock delays of ended holds; those of shares by number. */
export interface Holders {
  revision: string;
  whole?: Holder | undefined;
  shares: Map<number, Holder>;
  delay?: Delay | undefined;
  delays: Map<number, Delay>;
}

/** Which record to write, 0 for the lock itself, and the revision at which shares were counted. */
export interface Claim { share: number; counted: string }

export const nobody: Holders = { revision: "0", shares: new Map(), delays: new Map() };

/** The revision at which a lock had no shares, as last counted. */
export const countedIn = ({ revision, shares }: Holders, before: string) => shares.size ? before : revision;

const maxLimit = 1_000_000;
const maxReaders = 99_999;

/** Which share of a lock has this name; 0 if none. */
export function shareOf(lock: string, name: string): number {
  const [, base, number] = /^(.+)#([1-9][0-9]{0,8})$/s.exec(name) ?? [];
  return base === lock ? Number(number) : 0;
}

/** The name of the record of a share, or of the lock itself. */
export const shareName = (lock: string, share = 0) => share ? `${lock}#${share}` : lock;

/** Turns options into a need. Throws a RefusedError if they contradict each other or are out of range. */
export function needOf(name: string, options: KindOptions & { attributes?: Attributes | undefined }): Need {
  const { semaphore, weight = 1, shared, exclusive, attributes = {} } = options;
  const kinds = { semaphore: semaphore !== undefined, shared, exclusive };
  const [kind, other] = (["semaphore", "shared", "exclusive"] as const).filter((kind) => kinds[kind]);
  if (other) throw new RefusedError(`${kind} and ${other} contradict each other: a hold is of one kind`);
  if (kind === "semaphore") {
    whole("semaphore", semaphore, maxLimit);
    whole("weight", weight, semaphore ?? 0);
  } else if (weight !== 1) {
    throw new RefusedError("only a semaphore has a weight");
  }
  if (!kind) return {};
  if (/^.+#[1-9][0-9]{0,8}$/s.test(name)) {
    throw new RefusedError("the lock name ends in # and a number, which is reserved for shares");
  }
  if (Buffer.byteLength(name) > 256 - `#${semaphore ?? maxReaders}`.length) {
    throw new RefusedError("the lock name leaves no room for the number of a share");
  }
  const taken = ["kind", "permits", "limit"].find((name) => name in attributes);
  if (taken) throw new RefusedError(`attribute ${taken}: the name is reserved by the protocol`);
  return kind === "semaphore" ? { kind, limit: semaphore ?? 0, weight } : { kind };
}

function whole(what: string, number: unknown, most: number) {
  if (Number.isInteger(number) && Number(number) >= 1 && Number(number) <= most) return;
  throw new RefusedError(`${what} is ${String(number)}; it must be a whole number from 1 to ${most}`);
}

/** The attributes of the record that describe the kind. */
export function attributesOf({ kind, limit = 0, weight = 1 }: Need): Attributes {
  if (kind === "semaphore") return { kind, permits: weight, limit };
  return kind ? { kind } : {};
}

/** All holders, the oldest first. */
export function allOf({ whole, shares }: Holders): Holder[] {
  return [...(whole ? [whole] : []), ...[...shares.values()].sort((a, b) => Number(a.token - b.token))];
}

/** The share whose record has this uuid, 0 for the lock itself; undefined if none. */
export function mineOf({ whole, shares }: Holders, uuid: string): number | undefined {
  return whole?.uuid === uuid ? 0 : [...shares].find(([, holder]) => holder.uuid === uuid)?.[0];
}

/** How many of `limit` permits are free. */
function free({ whole, shares, delay, delays }: Holders, limit: number): number {
  if (whole ?? delay) return 0;
  const taken = [...shares.values()].map(({ permits = "1" }) => permits);
  const kept = [...delays.values()].map(({ permits }) => String(permits ?? limit));
  const count = (permits: string) => (/^[0-9]{1,9}$/.test(permits) && Number(permits)) || limit; // unreadable: all
  return Math.max([...taken, ...kept].reduce((left, permits) => left - count(permits), limit), 0);
}

/** Reports whether there is room for another holder of this kind. */
export function hasRoom(holders: Holders, { kind, limit = 0, weight = 1 }: Need): boolean {
  if (holders.whole ?? holders.delay) return false;
  if (kind === "semaphore") return weight <= free(holders, limit);
  return kind === "shared" || holders.shares.size + holders.delays.size === 0;
}

/** The lock delay that keeps out a caller with this need. */
export const delayFor = (holders: Holders, need: Need): Delay | undefined =>
  hasRoom(holders, need) ? undefined : holders.delay ?? [...holders.delays.values()][0];

/** What to claim given these holders: the lowest free share number after skipping `skip` free ones. */
export function claimOf(holders: Holders, need: Need, skip = 0): Claim {
  const { revision, shares, delays } = hasRoom(holders, need) ? holders : nobody;
  let share = need.kind === "exclusive" ? 0 : 1;
  for (let left = skip; share && (shares.has(share) || delays.has(share) || left > 0); share++) {
    if (!shares.has(share) && !delays.has(share)) left--;
  }
  return { share, counted: revision };
}
