/** What the answers to transactions mean. */

import { readDelay, readEnding } from "./documents.js";
import { allOf, hasRoom, mineOf, shareOf, type Holders } from "./kinds.js";
import { nameOf, readRecord, type Field, type Holder } from "./record.js";
import { judgeFault, Keys, ofShare, text } from "./transactions.js";
import type { Answer, Input, KeyValue, Step, Ticket, TxnAnswer, Verdict } from "./transactions.js";

/** What the answer to a step means. */
export function verdictOf(step: Step, k: Keys, i: Input, answer: Answer): Verdict {
  return judgeFault(answer, step) ?? meanings[step](new Reading(k, i, answer.body as TxnAnswer), i, k);
}

const bytes = (value = "") => Buffer.from(value, "base64");

/** What the operations of an answer read about a lock, by key. */
export class Reading {
  readonly k: Keys;
  readonly i: Input;
  readonly answer: TxnAnswer;
  readonly #rooms = new Map<string, KeyValue[]>();

  constructor(k: Keys, i: Input, answer: TxnAnswer) {
    [this.k, this.i, this.answer] = [k, i, answer];
    for (const kv of answer.responses?.flatMap(({ response_range }) => response_range?.kvs ?? []) ?? []) {
      const room = text(kv.key).slice(k.prefix.length).split("/")[0] ?? "";
      const known = this.#rooms.get(room);
      if (known) known.push(kv);
      else this.#rooms.set(room, [kv]);
    }
  }

  get revision() { return this.answer.header.revision; }

  /** The keys below the first segment after the prefix. */
  room(name: string): KeyValue[] { return this.#rooms.get(name) ?? []; }
  get(key: string): KeyValue | undefined {
    return [...this.#rooms.values()].flat().find((kv) => text(kv.key) === key);
  }

  get tail() { return this.get(this.k.tail); }
  get ticket() { return this.get(this.k.ticket(this.i.uuid)); }
  /** The tickets of the queue, the newest last. */
  get tickets(): KeyValue[] {
    const { tail } = this.k;
    return this.room(".queue").filter(({ key }) => text(key) !== tail)
      .sort((a, b) => Number(BigInt(a.create_revision) - BigInt(b.create_revision)));
  }
  /** Those of other attempts. */
  get others(): KeyValue[] { return this.tickets.filter((kv) => this.ticketOf(kv).ticket !== this.i.uuid); }

  ticketOf({ key, create_revision, lease }: KeyValue): Ticket {
    return { ticket: text(key).slice(this.k.queue.length), create_revision, ...(lease && { lease }) };
  }

  /** The fields of a record, and the token of the hold: 0 if the lock is not held. */
  record(k = this.k): { fields: Field[]; token: bigint; uuid: string | undefined } {
    const kvs = this.room(k.segment);
    const uuid = kvs.find(({ key }) => text(key) === k.field("uuid"));
    const fields = kvs.map(({ key, value, mod_revision }) =>
      ({ name: text(key).slice(k.record.length), value: bytes(value), modified: BigInt(mod_revision) }));
    return { fields, token: BigInt(uuid?.create_revision ?? 0), uuid: uuid && text(uuid.value) };
  }

  get isMine() { return this.record().uuid === this.i.uuid; }

  /** Who holds the lock, and the lock delays. */
  get holders(): Holders {
    const { k, i, revision } = this;
    const found: Holders = { revision, whole: this.#holder(k), shares: new Map(), delays: new Map() };
    for (const segment of this.#rooms.keys()) {
      const share = numberOf(k, segment);
      const holder = share ? this.#holder(ofShare(k, share)) : undefined;
      // To a plain lock, a name alone does not make a share. The other kinds need its number, too.
      if (holder && (i.kind ?? /^(semaphore|shared)$/.test(holder.kind ?? ""))) found.shares.set(share, holder);
    }
    for (const { key, value } of this.room(".delays")) {
      const name = k.lock + text(key).slice(k.delay.length);
      const delay = readDelay(bytes(value), name);
      if (name === k.lock) found.delay = delay;
      else if (shareOf(k.lock, name)) found.delays.set(shareOf(k.lock, name), delay);
    }
    return found;
  }

  #holder(k: Keys): Holder | undefined {
    const { fields, token, uuid } = this.record(k);
    return uuid === undefined ? undefined : readRecord(fields, token) as Holder;
  }

  /** The hold of an earlier send of the same attempt. */
  get earlier(): Verdict | undefined {
    const { holders } = this;
    const share = mineOf(holders, this.i.uuid);
    if (share === undefined) return undefined;
    const holder = share ? holders.shares.get(share) : holders.whole;
    return { verdict: "held_by_earlier_send", token: String(holder?.token), share };
  }

  /** How the hold ended. */
  get loss(): Verdict {
    const ending = readEnding(bytes(this.get(this.k.history(this.i.uuid))?.value), this.i.token);
    if (ending) return { verdict: "lost", reason: ending.ended, ending };
    return { verdict: "lost", reason: this.record().uuid === undefined ? "deleted" : "replaced" };
  }
}

/** The number of a share from the segment of its name; 0 for another lock with such a name. */
function numberOf(k: Keys, segment: string): number {
  try {
    return shareOf(k.lock, nameOf(segment));
  } catch {
    return 0;
  }
}

type Meaning = (found: Reading, i: Input, k: Keys) => Verdict;

const taken = (found: Reading, otherwise: (holders: Holders) => Verdict): Verdict =>
  found.answer.succeeded ? { verdict: "held", token: found.revision } : found.earlier ?? otherwise(found.holders);

const tried: Meaning = (found, i, k) => taken(found, (holders) => {
  const again = !found.tail && hasRoom(holders, i);
  return { verdict: again ? "again" : "refused", lock: k.lock, holders };
});

const turned: Meaning = (found, i, k) => taken(found, (holders) => {
  if (found.ticket?.create_revision !== i.position) return { verdict: "lost" };
  const share = i.kind ?? holders.whole ? undefined : mineOf(holders, allOf(holders)[0]?.uuid ?? "");
  return share ? { verdict: "wait", watch: ofShare(k, share).field("uuid"), holders } : { verdict: "again", holders };
});

const stands: Meaning = (found, i) => {
  const { fields, token } = found.record();
  if (found.answer.succeeded) return { verdict: "still_held", fields };
  // If it is mine, another process with my uuid reported progress that this heartbeat has not seen.
  return found.isMine && String(token) === i.token ? { verdict: "again", fields } : found.loss;
};

const released: Meaning = (found, i) => {
  if (found.answer.succeeded) return { verdict: "released" };
  const end = found.loss;
  return i.unanswered && !found.isMine && !end.ending ? { verdict: "released" } : end; // by an earlier send
};

const joined: Meaning = ({ ticket, answer, revision }) => {
  if (ticket) return { verdict: "joined_by_earlier_send", position: ticket.create_revision };
  if (!answer.succeeded) return { verdict: "lost" };
  const before = text(answer.responses?.[1]?.response_put?.prev_kv?.value);
  return { verdict: "joined", position: revision, before: before || undefined };
};

/** What to wait for, if only the ticket that was read last may be ahead. */
const placed: Meaning = (found, i, k) => {
  const { ticket, earlier, holders } = found;
  if (earlier) return earlier;
  if (!ticket || (i.position && ticket.create_revision !== i.position)) return { verdict: "lost" };
  const ahead = found.others.findLast((kv) => BigInt(kv.create_revision) < BigInt(ticket.create_revision));
  if (ahead) return { verdict: "wait", watch: text(ahead.key), before: found.ticketOf(ahead).ticket };
  if (hasRoom(holders, i)) return { verdict: "turn", before: "", holders };
  return { verdict: "wait", watch: holders.whole ?? i.kind ? k.field("uuid") : k.delay, before: "", holders };
};

const looked: Meaning = (found, i, k) => {
  const verdict = placed(found, i, k);
  const tookIt = i.before && mineOf(found.holders, i.before) !== undefined; // then no ticket is ahead of mine
  const lostSight = i.before && verdict.before === "" && !tookIt;
  const noTail = verdict.verdict === "wait" && !found.tail;
  return lostSight || noTail ? { verdict: "scan" } : verdict;
};

const scanned: Meaning = (found, i, k) => {
  const verdict = placed(found, i, k);
  const newest = found.tail ? undefined : found.tickets.at(-1);
  return verdict.verdict === "wait" && newest ? { ...verdict, restore: found.ticketOf(newest) } : verdict;
};

const leaving: Meaning = (found) => {
  if (!found.answer.succeeded) return { verdict: "left" };
  const older = found.others.at(-1);
  return { verdict: "as_tail", older: older ? found.ticketOf(older) : null };
};

/** Tickets of holders do not count, because some clients keep theirs. */
const surveyed: Meaning = (found) => {
  const { holders } = found;
  const uuids = allOf(holders).map(({ uuid }) => uuid);
  const waiting = found.others.filter((kv) => !uuids.includes(found.ticketOf(kv).ticket)).length;
  return { verdict: "answered", holders, waiting };
};

const allTaken: Meaning = ({ answer }, { locks = [] }, { prefix }) => {
  const each = locks.map((one, n) => {
    const k = new Keys(prefix, one.lock);
    const responses = answer.responses?.slice(4 * n, 4 * n + 4) ?? [];
    return tried(new Reading(k, one, { ...answer, responses }), one, k);
  });
  const refused = each.filter(({ verdict }) => verdict === "refused");
  const inTheWay = refused.find(({ holders }) => holders && !hasRoom(holders, {}));
  return inTheWay ?? refused[0] ?? each[0] ?? { verdict: "refused" };
};

/** What the answer to each step means. */
const meanings: Record<Step, Meaning> = {
  acquire: tried,
  try: tried,
  alive: stands,
  check: stands,
  detach: (found, i, k) => found.answer.succeeded ? stands(found, i, k) : found.loss,
  release: released,
  release_in_doubt: released,
  cancel: ({ holders }, { uuid }) => ({ verdict: "cancelled", share: mineOf(holders, uuid) }),
  withdraw: ({ holders }, { uuid }) => ({ verdict: "again", share: mineOf(holders, uuid) }),
  join: joined,
  look: looked,
  scan: scanned,
  turn: turned,
  leave: leaving,
  leave_as_tail: ({ answer }) => ({ verdict: answer.succeeded ? "left" : "again" }),
  restore_tail: () => ({ verdict: "again" }),
  survey: surveyed,
  acquire_all: allTaken,
  read_period: () => ({ verdict: "answered" }),
  acquire_once: (found, i, k) => {
    const verdict = tried(found, i, k);
    const seen = found.get(k.period)?.mod_revision ?? "0";
    return verdict.verdict === "refused" && seen !== (i.seen ?? "0") ? { ...verdict, verdict: "again" } : verdict;
  },
  restore_period: () => ({ verdict: "again" }),
  settle: ({ earlier }) => earlier ?? { verdict: "again" },
};
