/** A lock in etcd: its name, its times, and the record of its holder. */

import { RefusedError } from "./errors.js";

const maxText = 1024;
const maxBacktrace = 16 * 1024;
const maxRecord = 64 * 1024;
const maxAttributes = 64;

/** Returns the name of a lock as a segment of a key. Throws a RefusedError if the name is not valid. */
export function segment(name: string): string {
  const bytes = Buffer.from(name);
  if (bytes.length === 0 || bytes.length > 256 || /\p{Cc}/u.test(name) || bytes.toString() !== name) {
    throw new RefusedError(`lock name ${plain(name)}: want 1 to 256 bytes of UTF-8 without control characters`);
  }
  return escape(name);
}

/** Returns the name that a segment encodes. Throws a RefusedError if {@link segment} never writes it. */
export function nameOf(segment: string): string {
  const name = segment.replace(/%(25|2F|2E)/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  if (name === "" || escape(name) !== segment) throw new RefusedError(`${plain(segment)} is not a lock's segment`);
  return name;
}

const escape = (name: string) =>
  name.replace(/[%/]|^\./g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());

/** Parses a time into whole seconds since 1970 and nanoseconds. Returns undefined for malformed text. */
export function parseTime(text: string): { seconds: number; nanoseconds: number } | undefined {
  const [, seconds, fraction = ""] = /^([0-9]{10})(?:\.([0-9]{1,9}))?$/.exec(text) ?? [];
  return seconds === undefined ? undefined : { seconds: Number(seconds), nanoseconds: Number(fraction.padEnd(9, "0")) };
}

/** Parses a time to the millisecond. */
export function dateOf(text = ""): Date | undefined {
  const at = parseTime(text);
  return at && new Date(at.seconds * 1000 + at.nanoseconds / 1e6);
}

/** Returns a time, in milliseconds since 1970, as text. */
export function formatTime(ms: number): string {
  const [seconds, thousandths] = [Math.floor(ms / 1000), Math.floor(ms) % 1000];
  const fraction = thousandths ? "." + String(thousandths).padStart(3, "0").replace(/0+$/, "") : "";
  return String(seconds).padStart(10, "0") + fraction;
}

/** Strings, numbers and booleans by name, shown with the lock and in its history. */
export type Attributes = Record<string, string | number | boolean>;

/** Members of the protocol by name, such as `owner` and `purpose`; undefined and empty ones are left out. */
export type Members = Record<string, string | number | boolean | undefined>;

/** What a holder writes about itself, apart from times. */
export interface Facts {
  members: Members;
  backtrace: string;
  attributes: Attributes;
}

/** How long a hold lasts, and its heartbeat at most, in milliseconds. */
export interface Life { alertAfter: number; autoUnlockAfter: number; heartbeat?: number }

/** The fields of a new record, in the order of writing. Times are in milliseconds. */
export function fields(uuid: string, facts: Facts, now: number, life: Life) {
  const { members, backtrace, attributes } = facts;
  for (const [name, value] of [...Object.entries(members), ...Object.entries(attributes)]) checkText(name, value);
  checkAttributes(attributes);
  const until = life.heartbeat ? formatTime(now + life.heartbeat) : "";
  const known = { ...members, locked_at: formatTime(now), heartbeat_until: until, backtrace: cutLines(backtrace) };
  const given = Object.entries(known).filter(([, value]) => value !== "");
  const metadata = JSON.stringify({ ...Object.fromEntries(given), ...attributes });
  const [alertAt, unlockAt] = [now + Math.min(life.alertAfter, life.autoUnlockAfter), now + life.autoUnlockAfter];
  const all = { uuid, alert_at: formatTime(alertAt), auto_unlock_at: formatTime(unlockAt), metadata };
  if (Buffer.byteLength(Object.entries(all).flat().join("")) > maxRecord) {
    throw new RefusedError(`the record has more than ${maxRecord} bytes`);
  }
  return all;
}

function checkText(name: string, value: unknown) {
  if (typeof value !== "string") return;
  const bytes = Buffer.from(value);
  if (bytes.length > maxText) throw new RefusedError(`${name} has ${bytes.length} bytes; at most 1024 are allowed`);
  if (bytes.toString() !== value) throw new RefusedError(`${name} is not valid Unicode`);
}

/** The names that attributes must not have. @internal */
export const reserved = new Set([
  "uuid", "alert_at", "auto_unlock_at", "alive", "asked", "extended", "acknowledged", "metadata",
  "owner", "hostname", "pid", "locked_at", "purpose", "backtrace", "client",
  "boot_id", "process_start", "pid_namespace", "supervisor_start", "cgroup_id", "pod_namespace", "pod_name", "pod_uid",
  "container", "detached", "lock_delay", "heartbeat_until",
]);

function checkAttributes(attributes: Attributes) {
  const all = Object.entries(attributes);
  if (all.length > maxAttributes) throw new RefusedError(`there are ${all.length} attributes; at most 64 are allowed`);
  for (const [name, value] of all) {
    if (!/^[a-z][a-z0-9_]{0,62}$/.test(name)) {
      throw new RefusedError(`attribute name ${plain(name)}: want a letter, then letters, digits or _, all lowercase`);
    }
    if (reserved.has(name)) throw new RefusedError(`attribute ${name}: the name is reserved by the protocol`);
    if (!["string", "boolean", "number"].includes(typeof value) || (typeof value === "number" && !isFinite(value))) {
      throw new RefusedError(`attribute ${name}: want a string, a number or a boolean`);
    }
  }
}

/** Keeps whole lines of the newest frames, so that a long backtrace does not fail the lock. */
function cutLines(text: string): string {
  if (Buffer.byteLength(text) <= maxBacktrace) return text;
  const mark = "\n... cut\n";
  const kept = Buffer.from(text).subarray(0, maxBacktrace - mark.length).toString();
  return kept.slice(0, Math.max(kept.lastIndexOf("\n"), 0)) + mark;
}

/** The value of `alive`. Progress is cut to 1 KiB. */
export function alive(now: number, progress: string): string {
  return progress ? `${formatTime(now)} ${cutText(progress)}` : formatTime(now);
}

/** Cuts text to 1 KiB, never inside a character. */
function cutText(text: string): string {
  const whole = new TextDecoder("utf-8", { ignoreBOM: true });
  return whole.decode(Buffer.from(text).subarray(0, maxText), { stream: true });
}

/** One field as read, with its mod revision. @internal */
export interface Field { name: string; value: Buffer; modified: bigint }

/** The record of a holder. Its texts are as the holder wrote them: escape them for display. */
export interface Holder {
  /** Identifier of the hold. */
  uuid: string;
  /** Fencing token of the hold. */
  token: bigint;
  owner?: string;
  hostname?: string;
  pid?: number;
  purpose?: string;
  /** When it asked for the lock, by its own clock. */
  lockedAt?: Date;
  /** After this, operators are alerted. */
  alertAt?: Date;
  /** After this, an unlocker may remove the lock. */
  unlockAt?: Date;
  /** Where others reach a leader. */
  address?: string;
  /** How it is held, if others may share the lock. */
  kind?: string;
  /** How many permits of a semaphore it has, as written; one if absent. */
  permits?: string;
}

/** Reads a record whose uuid was created at the revision `token`. Unreadable members are absent. @internal */
export function readRecord(all: Field[], token: bigint): Partial<Holder> {
  const own = new Map(all.filter((f) => f.modified >= token).map((f) => [f.name, f.value])); // older ones are leftovers
  const written = own.get("metadata") ?? Buffer.of();
  const metadata = written.length > maxRecord ? {} : parseObject(written.toString());
  const text = (name: string) => {
    const bytes = own.get(name);
    if (bytes) return cutText(bytes.toString());
    const value = asText(metadata[name]);
    return value && cutText(value);
  };
  const pid = /^[1-9][0-9]{0,14}$/.exec(text("pid") ?? "");
  const record = {
    uuid: own.get("uuid")?.toString(), token, owner: text("owner"), hostname: text("hostname"),
    pid: pid ? Number(pid[0]) : undefined, purpose: text("purpose"), lockedAt: dateOf(text("locked_at")),
    alertAt: dateOf(own.get("alert_at")?.toString()), unlockAt: dateOf(own.get("auto_unlock_at")?.toString()),
    address: text("address"), kind: text("kind"), permits: text("permits"),
  };
  return Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined));
}

/** Parses a JSON object; returns an empty one for anything else. */
export function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {};
  } catch {
    return {};
  }
}

/** Strings, numbers and booleans as a string; undefined for anything else. */
export const asText = (value: unknown) =>
  typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : undefined;

/** One line about who holds a lock, where, since when, what for, and its deadlines. */
export function describe(holder: Holder, now = Date.now()): string {
  let line = holder.owner ? plain(holder.owner) : "an unknown owner";
  if (holder.hostname) line += ` on ${plain(holder.hostname)}`;
  if (holder.pid) line += ` (pid ${holder.pid})`;
  if (holder.lockedAt) line += `, taken ${relative(holder.lockedAt, now)}`;
  if (holder.purpose) line += ` for ${plain(holder.purpose)}`;
  if (holder.alertAt) line += `; ${due(holder.alertAt, now, "alert", "alerted")}`;
  if (holder.unlockAt) line += `, ${due(holder.unlockAt, now, "auto-unlock", "auto-unlock was due")}`;
  return line;
}

const due = (at: Date, now: number, ahead: string, past: string) =>
  `${at.getTime() > now ? ahead : past} ${relative(at, now)}`;

/** A time relative to now: "in 5 minutes". */
export function relative(at: Date, now: number): string {
  const seconds = (at.getTime() - now) / 1000;
  const [unit, name] = ([[86400, "days"], [3600, "hours"], [60, "minutes"]] as const)
    .find(([unit]) => Math.abs(seconds) >= 2 * unit) ?? [1, "seconds"];
  const n = Math.floor(Math.abs(seconds) / unit);
  return seconds > 0 ? `in ${n} ${name}` : `${n} ${name} ago`;
}

/** Makes untrusted text safe in a sentence: quoted, short, with invisible characters escaped. */
export const plain = (text: string) => visible(JSON.stringify(shorten(text, 120)));

export const inWords = (seconds: number) => `${Number(seconds.toPrecision(15))} s`;

/** Makes untrusted text safe: one line, at most `most` characters, with invisible ones escaped. */
export function visible(text: string, most = 1024): string {
  const hidden = /[\p{C}\p{Zl}\p{Zp}]/gu;
  return shorten(text.replace(hidden, (c) => `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`), most);
}

const shorten = (text: string, most: number) =>
  text.length > most ? text.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "") + "…" : text;
