/** The transactions of the protocol as data, and what the answers mean. Nothing here does I/O. */

import type { Ending } from "./documents.js";
import type { Reason } from "./errors.js";
import { shareName, type Claim, type Holders, type Need } from "./kinds.js";
import { segment, type Field } from "./record.js";

/** A key in the format of etcd's JSON gateway: 64-bit numbers are strings, bytes are base64. */
export interface KeyValue {
  key: string;
  value?: string;
  create_revision: string;
  mod_revision: string;
  lease?: string;
}

/** The answer to a transaction. Members with default values are absent. */
export interface TxnAnswer {
  header: { revision: string };
  succeeded?: boolean;
  responses?: { response_range?: { kvs?: KeyValue[]; count?: string }; response_put?: { prev_kv?: KeyValue } }[];
}

/** The HTTP response; empty if there was no answer. */
export interface Answer { status?: number; body?: unknown }

/** Another ticket of the queue. */
export interface Ticket { ticket: string; create_revision: string; lease?: string }

/** The inputs of the transactions. */
export interface Input extends Need, Partial<Claim> {
  lock: string;
  uuid: string;
  /** Fields of the record by name, in the order of writing. */
  fields?: Record<string, string>;
  /** Fencing token of the hold. */
  token?: string;
  /** The value of the ticket. */
  ticket?: string;
  /** The lease of a ticket or tombstone. */
  lease?: string;
  /** Create revision of the ticket. */
  position?: string;
  /** The ticket before mine; empty or undefined if mine is first. */
  before?: string | undefined;
  /** The ticket that the tail is to name. */
  older?: Ticket | undefined;
  /** The attempt joined the queue, or may have. */
  queued?: boolean;
  /** For a heartbeat: the latest known mod revision of `alive`. */
  seen?: string;
  /** An earlier send of the same transaction got no answer. */
  unanswered?: boolean;
  locks?: Input[];
  /** The value of a period key to write or to restore. */
  taken?: string;
}

/** What an answer means, with the details. */
export interface Verdict {
  verdict: "held" | "held_by_earlier_send" | "refused" | "still_held" | "lost" | "released" | "cancelled" | "joined" |
    "joined_by_earlier_send" | "wait" | "turn" | "scan" | "again" | "left" | "as_tail" | "withdraw" | "lease" |
    "login" | "resend" | "report" | "answered";
  token?: string;
  position?: string;
  reason?: Reason;
  ending?: Ending;
  doubt?: boolean;
  /** The ticket before mine, if known; empty if mine is first. */
  before?: string | undefined;
  /** The key whose deletion to wait for. */
  watch?: string;
  restore?: Ticket;
  /** The share whose record is mine, 0 for the lock itself. */
  share?: number | undefined;
  holders?: Holders;
  waiting?: number;
  /** The record of the hold. */
  fields?: Field[];
  /** Which of several locks was refused. */
  lock?: string;
  older?: Ticket | null;
}

export type Step = keyof typeof transactions;

/** The keys of one lock. */
export class Keys {
  readonly prefix: string;
  readonly lock: string;
  readonly segment: string;
  readonly record: string;
  readonly queue: string;
  readonly delay: string;

  constructor(prefix: string, lock: string) {
    const own = segment(lock);
    [this.prefix, this.lock, this.segment] = [prefix, lock, own];
    [this.record, this.queue, this.delay] = [`${prefix}${own}/`, `${prefix}.queue/${own}/`, `${prefix}.delays/${own}`];
  }

  field(name: string) { return this.record + name; }
  ticket(uuid: string) { return this.queue + uuid; }
  get tail() { return this.queue + ".tail"; }
  cancelled(uuid: string) { return `${this.prefix}.cancelled/${uuid}`; }
  statement(kind: string, uuid: string) { return `${this.prefix}.${kind}/${uuid}`; }
  history(uuid: string) { return `${this.prefix}.history/${uuid}`; }
  get period() { return `${this.prefix}.periods/${this.segment}`; }
  /** The range of the record's keys. */
  get all() { return { key: base64(this.record), range_end: base64(endOf(this.record)) }; }
  /** The range of the tickets, without the tail. */
  get tickets() { return { key: base64(this.queue + "/"), range_end: base64(endOf(this.queue)) }; }
}

export const base64 = (text: string) => Buffer.from(text).toString("base64");
export const text = (value: string | undefined) => Buffer.from(value ?? "", "base64").toString();

/** The end of the range of a prefix that ends with "/": "0" is the next byte. */
const endOf = (prefix: string) => prefix.slice(0, -1) + "0";

const created = (key: string, revision = "0") =>
  ({ key: base64(key), target: "CREATE", result: "EQUAL", create_revision: revision });
const valued = (key: string, value: string, result = "EQUAL") =>
  ({ key: base64(key), target: "VALUE", result, value: base64(value) });
const unchanged = (key: string, revision: string) =>
  ({ key: base64(key), target: "MOD", result: "EQUAL", mod_revision: revision });
const put = (key: string, value: string, lease?: string) =>
  ({ request_put: { key: base64(key), ...(value && { value: base64(value) }), ...(lease && { lease }) } });
/** A put that also returns the previous value. */
const replace = (key: string, value: string, lease?: string) => {
  const { request_put } = put(key, value, lease);
  return { request_put: { ...request_put, prev_kv: true } };
};
const get = (key: string) => ({ request_range: { key: base64(key) } });
const remove = (key: string) => ({ request_delete_range: { key: base64(key) } });
const removeAll = (k: Keys) => ({ request_delete_range: k.all });
export const readAll = (k: Keys) => ({ request_range: k.all });
const newest = (k: Keys, limit: string, below?: string) => ({
  request_range: {
    ...k.tickets, limit, sort_order: "DESCEND", sort_target: "CREATE",
    ...(below && { max_create_revision: String(BigInt(below) - 1n) }),
  },
});
const record = (k: Keys, i: Input) =>
  Object.entries(i.fields ?? {}).map(([name, value]) => put(k.field(name), value));
const held = (k: Keys, i: Input) => [valued(k.field("uuid"), i.uuid), created(k.field("uuid"), i.token)];
const notCancelled = (k: Keys, i: Input) => created(k.cancelled(i.uuid));
export const tombstone = (k: Keys, i: Input) => put(k.cancelled(i.uuid), i.lock, i.lease);
export const dequeue = (k: Keys, i: Input) => [
  remove(k.ticket(i.uuid)),
  { request_txn: { compare: [valued(k.tail, i.uuid)], success: [remove(k.tail)] } },
];
export const ofShare = (k: Keys, share?: number) => new Keys(k.prefix, shareName(k.lock, share));
export const shareRange = (k: Keys) => [`${k.record.slice(0, -1)}#1`, `${k.record.slice(0, -1)}#:`] as const;
export const delayRange = (k: Keys) => [`${k.delay}#1`, `${k.delay}#:`] as const;
const range = (from: string, end: string) => ({ request_range: { key: base64(from), range_end: base64(end) } });
/** Reads who holds the lock, and its lock delays. */
export const who = (k: Keys, i: Input) =>
  [readAll(k), range(...shareRange(k)), i.kind ? range(k.delay, delayRange(k)[1]) : get(k.delay)];
const noneSince = (revision = "0", [from, end]: readonly [string, string]) =>
  ({ ...created(from, String(BigInt(revision) + 1n)), range_end: base64(end), result: "LESS" });
/** Compares that the claim is still free, and that no share was added since they were counted. */
const free = (k: Keys, i: Input) => {
  const own = ofShare(k, i.share);
  return [
    created(own.field("uuid")), notCancelled(k, i), created(own.delay),
    ...(i.share ? [created(k.field("uuid")), created(k.delay)] : []),
    ...(i.kind === "shared" ? [] : [noneSince(i.counted, shareRange(k))]),
    ...(i.kind && i.kind !== "shared" ? [noneSince(i.counted, delayRange(k))] : []),
  ];
};
/** Reads what a waiter waits for, except the ticket ahead. */
const place = (k: Keys, i: Input) => {
  const [own, shares, delays] = who(k, i);
  return i.kind ? [get(k.ticket(i.uuid)), own, get(k.tail), delays, shares]
    : [k.ticket(i.uuid), k.field("uuid"), k.tail, k.delay].map(get);
};
const tailTo = (k: Keys, y: Ticket) => put(k.tail, y.ticket, y.lease);

/** The same with a tombstone, whichever branch is done. */
const entombed = (k: Keys, i: Input, body: { success: object[]; failure?: object[] }) =>
  ({ ...body, success: [tombstone(k, i), ...body.success], failure: [tombstone(k, i), ...body.failure ?? []] });

/** The body of each step. */
export const transactions = {
  acquire: (k: Keys, i: Input) => ({
    compare: [...free(k, i), created(k.tail)],
    success: record(ofShare(k, i.share), i),
    failure: [...who(k, i), get(k.tail)],
  }),
  try: (k: Keys, i: Input) => {
    const body = transactions.acquire(k, i);
    return { ...body, compare: [...body.compare, created(k.ticket(i.uuid))] };
  },
  alive: (k: Keys, i: Input) => ({
    compare: [...held(k, i), ...(i.seen === undefined ? [] : [unchanged(k.field("alive"), i.seen)])],
    success: [
      {
        request_txn: {
          compare: [valued(k.field("auto_unlock_at"), i.fields?.auto_unlock_at ?? "", "LESS")],
          success: record(k, i).slice(0, 2),
        },
      },
      put(k.field("alive"), i.fields?.alive ?? ""),
    ],
    failure: [readAll(k), get(k.history(i.uuid))],
  }),
  /** Reads the record of a hold, and its ending if there is one. */
  check: (k: Keys, i: Input) =>
    ({ compare: held(k, i), success: [readAll(k)], failure: [readAll(k), get(k.history(i.uuid))] }),
  /** Records that the end of the process that took the lock proves nothing about the hold. */
  detach: (k: Keys, i: Input) => ({
    compare: held(k, i),
    success: [
      put(k.field("detached"), "true"), ...["deaths", "suspicions"].map((kind) => remove(k.statement(kind, i.uuid))),
      readAll(k),
    ],
    failure: [readAll(k), get(k.history(i.uuid))],
  }),
  release: (k: Keys, i: Input) => ({
    compare: held(k, i),
    success: [removeAll(k), ...(i.queued ? dequeue(k, i) : [])],
    failure: [readAll(k), get(k.history(i.uuid)), ...(i.queued ? dequeue(k, i) : [])],
  }),
  release_in_doubt: (k: Keys, i: Input) => entombed(k, i, transactions.release(k, { ...i, queued: true })),
  cancel: (k: Keys, i: Input) => entombed(k, i, transactions.withdraw(k, i)),
  /** Cancels without puts, for an etcd that is out of space. */
  withdraw: (k: Keys, i: Input) => ({
    compare: [valued(k.field("uuid"), i.uuid)],
    success: [removeAll(k), ...(i.queued ? dequeue(k, i) : [])],
    ...(i.queued && { failure: dequeue(k, i) }),
  }),
  join: (k: Keys, i: Input) => ({
    compare: [created(k.ticket(i.uuid)), notCancelled(k, i)],
    success: [put(k.ticket(i.uuid), i.ticket ?? "", i.lease), replace(k.tail, i.uuid, i.lease)],
    failure: [get(k.ticket(i.uuid))],
  }),
  look: (k: Keys, i: Input) => ({ success: [...place(k, i), ...(i.before ? [get(k.ticket(i.before))] : [])] }),
  /** Finds the ticket before mine. etcd scans every ticket since its last compaction for this. */
  scan: (k: Keys, i: Input) => ({ success: [...place(k, i), newest(k, "1", i.position), newest(k, "1")] }),
  turn: (k: Keys, i: Input) => ({
    compare: [...free(k, i), created(k.ticket(i.uuid), i.position)],
    success: [...record(ofShare(k, i.share), i), ...dequeue(k, i)],
    failure: [...who(k, i), get(k.ticket(i.uuid))],
  }),
  leave: (k: Keys, i: Input) =>
    ({ compare: [valued(k.tail, i.uuid)], success: [newest(k, "2")], failure: [remove(k.ticket(i.uuid))] }),
  leave_as_tail: (k: Keys, i: Input) => ({
    compare: [valued(k.tail, i.uuid), ...(i.older ? [created(k.ticket(i.older.ticket), i.older.create_revision)] : [])],
    success: [remove(k.ticket(i.uuid)), i.older ? tailTo(k, i.older) : remove(k.tail)],
  }),
  restore_tail: (k: Keys, i: Input) => ({
    compare: [created(k.tail), ...(i.older ? [created(k.ticket(i.older.ticket), i.older.create_revision)] : [])],
    success: i.older ? [tailTo(k, i.older)] : [],
  }),
  /** Takes several locks, all or none. */
  acquire_all: (k: Keys, { locks = [] }: Input) => {
    const all = locks.map((one) => transactions.acquire(new Keys(k.prefix, one.lock), one));
    return {
      compare: all.flatMap(({ compare }) => compare), success: all.flatMap(({ success }) => success),
      failure: all.flatMap(({ failure }) => failure),
    };
  },
  /** Reads which period was taken last, and the unlockers' clocks. */
  read_period: (k: Keys) => {
    const unlockers = `${k.prefix}.unlockers/`;
    const clocks = { key: base64(unlockers), range_end: base64(endOf(unlockers)), limit: "100" };
    return { success: [get(k.period), { request_range: clocks }] };
  },
  acquire_once: (k: Keys, i: Input) => {
    const { compare, success, failure } = transactions.acquire(k, i);
    return {
      compare: [...compare, unchanged(k.period, i.seen ?? "0")],
      success: [...success, put(k.period, i.taken ?? "")], failure: [...failure, get(k.period)],
    };
  },
  /** Restores the period key to its value before this hold, unless it has changed since. */
  restore_period: (k: Keys, i: Input) => ({
    compare: [...held(k, i), unchanged(k.period, i.token ?? "0")],
    success: [i.taken ? put(k.period, i.taken) : remove(k.period)],
  }),
  /** Finds out whether an unanswered request took the lock, and keeps a late one from taking it. */
  settle: (k: Keys, i: Input) => ({ success: [tombstone(k, i), readAll(k), get(k.history(i.uuid))] }),
  /** Reads who holds the lock, its lock delays, and the names of the tickets. */
  survey: (k: Keys, i: Input) =>
    ({ success: [...who(k, i), { request_range: { ...k.tickets, keys_only: true } }] }),
};

const withoutPuts: Step[] = ["cancel", "release_in_doubt", "leave_as_tail"]; // these have alternatives without puts

/**
 * What an error means, for transactions and all other requests; undefined if the answer is not an error. An answer that
 * is not from etcd means nothing.
 */
export function judgeFault({ status, body }: Answer, step?: Step): Verdict | undefined {
  if (status === 200 && isAnswer(body)) return undefined;
  const { code, message = "" } = errorIn(body) ?? {};
  const tail = step === "leave_as_tail" || step === "restore_tail";
  switch (code) {
    case 16:
      return { verdict: "login", doubt: false };
    case 3:
      return { verdict: /user name is empty|auth store is old/.test(message) ? "login" : "report", doubt: false };
    case 7:
      return { verdict: "report", doubt: false };
    case 9: // of a learner, or of a member of an older cluster
      return { verdict: /not supported for learner|not capable/.test(message) ? "resend" : "report", doubt: false };
    case 5:
      if (!message.includes("lease not found")) return { verdict: "report", doubt: false };
      return { verdict: tail ? "again" : "lease", doubt: false };
    case 8:
      if (message.includes("too many requests")) return { verdict: "resend", doubt: false };
      if (!message.includes("database space exceeded")) break;
      if (step === "restore_tail") return { verdict: "again", doubt: true };
      if (step && withoutPuts.includes(step)) return { verdict: "withdraw", doubt: true };
  }
  return { verdict: "resend", doubt: true };
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** Reports whether the answer is from etcd: it has a header, in a stream within the result. */
function isAnswer(body: unknown): boolean {
  if (!isObject(body)) return false;
  const { header } = isObject(body.result) ? body.result : body;
  return isObject(header) && typeof header.revision === "string" && /^[0-9]+$/.test(header.revision);
}

/** The etcd error in a body, if any. Streams, such as a keepalive, wrap it. */
export function errorIn(body: unknown): { code: number; message: string } | undefined {
  if (!isObject(body)) return undefined;
  const error = isObject(body.error) ? body.error : body;
  const code = error.code ?? error.grpc_code;
  return typeof code === "number" && typeof error.message === "string" ? { code, message: error.message } : undefined;
}
