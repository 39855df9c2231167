/** The documents that others write about a hold. Malformed ones are ignored. */

import { asText, dateOf, parseObject, plain, relative } from "./record.js";

/** A request to finish, or an operator's extension. The texts are unescaped. */
export interface Note {
  by?: string;
  reason?: string;
  source?: string;
  at?: Date;
  /** How much time was given; absent if not known. */
  seconds?: number;
}

/** How a hold was ended by another program or an operator. */
export interface Ending { ended: string; by?: string; why?: string }

/** The lock delay of a hold that was ended: the lock must not be taken yet. Unreadable members are absent. */
export interface Delay {
  /** The owner and host of the hold that was ended. */
  owner?: string;
  hostname?: string;
  /** When the delay ends, by the clock of whoever ended the hold. */
  until?: Date;
  /** How many permits of a semaphore it keeps; all if not known. */
  permits?: number;
}

const maxNote = 2048;
const maxDelay = 4096;

/** Reads a request to finish; undefined if it is not for the hold with this uuid and token. @internal */
export function readRequest(value: Buffer, uuid: string, token: string): Note | undefined {
  const document = value.length <= maxNote ? parse(value) : {};
  const { at } = document;
  if (document.uuid !== uuid || document.token !== Number(token) || !isTime(at)) return undefined;
  const texts = readTexts(document, ["by", "reason", "source"]);
  const date = dateOf(asText(at));
  return texts && { ...texts, ...(date && { at: date }) };
}

/** Reads who extended the hold, and by how much. @internal */
export function readExtension(value: Buffer, uuid: string, token: string): Note | undefined {
  const { seconds, auto_unlock_at } = parse(value);
  if (!isTime(auto_unlock_at) || (isGiven(seconds) && !Number.isSafeInteger(seconds))) return undefined;
  const note = readRequest(value, uuid, token);
  return note && { ...note, ...(typeof seconds === "number" && seconds > 0 && { seconds }) };
}

/** Reads how the hold with this token ended; undefined if the note cannot be read. @internal */
export function readEnding(value: Buffer, token: string | undefined): Ending | undefined {
  const document = parse(value);
  const { ended } = document;
  const texts = readTexts(document, ["by", "why"]);
  const isWord = typeof ended === "string" && /^[a-z][a-z0-9_]{0,62}$/.test(ended);
  return texts && isWord && document.token === Number(token) ? { ended, ...texts } : undefined;
}

/** Reads the delay of a lock. @internal */
export function readDelay(value: Buffer, lock: string): Delay {
  const document = value.length <= maxDelay ? parse(value) : {};
  const { at, seconds = 0, permits } = document;
  const texts = readTexts(document, ["owner", "hostname"]);
  const areWhole = [seconds, permits ?? 1].every((number) => Number.isSafeInteger(number));
  const isReadable = texts && document.lock === lock && isTime(at) && areWhole;
  if (!isReadable) return {};
  const ended = dateOf(asText(at));
  const until = ended && new Date(ended.getTime() + Number(seconds) * 1000);
  const kept = Math.max(Number(permits ?? 1), 1);
  return { ...texts, ...(until && !isNaN(until.getTime()) && { until }), permits: kept };
}

/** A lock delay in words. */
export function describeDelay({ owner, hostname, until }: Delay, now = Date.now()): string {
  const who = owner === undefined ? "" : ` after the hold of ${plain(owner)}`;
  return `a lock delay${who}${who && hostname ? ` on ${plain(hostname)}` : ""}` +
    (until ? `, which ends ${relative(until, now)}` : "");
}

const parse = (value: Buffer) => parseObject(value.toString());

const isGiven = (value: unknown) => value !== undefined && value !== null;

const isTime = (value: unknown) => !isGiven(value) || dateOf(asText(value)) !== undefined;

/** The members with these names that are present; undefined if one is not a string. */
function readTexts<T extends string>(document: Record<string, unknown>, names: T[]) {
  const given = names.filter((name) => isGiven(document[name])).map((name) => [name, document[name]] as const);
  if (!given.every(([, value]) => typeof value === "string")) return undefined;
  const wellFormed = (value: unknown) => Buffer.from(String(value)).toString(); // lone surrogates become U+FFFD
  return Object.fromEntries(given.map(([name, value]) => [name, wellFormed(value)])) as Partial<Record<T, string>>;
}
