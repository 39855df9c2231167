/** The transactions of semaphores and read-write locks: each share has a record of its own. */

import { hasRoom, mineOf, shareName, shareOf, type Holders } from "./kinds.js";
import { nameOf } from "./record.js";
import {
  base64, countWaiting, created, delayIn, dequeue, get, holderIn, judgeFault, Keys, keysIn, looked, looking, meanings,
  notCancelled, readAll, record, scanned, scanning, text, ticketOf, tombstone, transactions, waiters,
} from "./transactions.js";
import type { Answer, Input, KeyValue, Meaning, Step, TxnAnswer, Verdict } from "./transactions.js";

/** The body of a step. */
export function bodyOf(step: Step, k: Keys, i: Input): object {
  return ((i.kind && shares[step]) ?? transactions[step])(k, i);
}

/** What the answer to a step means. */
export function verdictOf(step: Step, k: Keys, i: Input, answer: Answer): Verdict {
  const meaning = (i.kind && meaningsOfShares[step]) ?? meanings[step];
  return judgeFault(answer, step) ?? meaning(k, i, answer.body as TxnAnswer);
}

const ofShare = (k: Keys, share?: number) => new Keys(k.prefix, shareName(k.lock, share));
const range = (from: string, end: string) => ({ request_range: { key: base64(from), range_end: base64(end) } });
const shareRange = (k: Keys) => [`${k.record.slice(0, -1)}#1`, `${k.record.slice(0, -1)}#:`] as const;
const delayRange = (k: Keys) => [`${k.delay}#1`, `${k.delay}#:`] as const;
const noneSince = (revision = "0", [from, end]: readonly [string, string]) =>
  ({ ...created(from, String(BigInt(revision) + 1n)), range_end: base64(end), result: "LESS" });
const who = (k: Keys) => [readAll(k), range(...shareRange(k)), range(k.delay, delayRange(k)[1])] as const;

/** Compares that the claim is still free, and that no share was added since they were counted. */
const free = (k: Keys, i: Input) => {
  const own = ofShare(k, i.share);
  return [
    created(own.field("uuid")), notCancelled(k, i), created(own.delay),
    ...(i.share ? [created(k.field("uuid")), created(k.delay)] : []),
    ...(i.kind === "shared" ? [] : [noneSince(i.counted, shareRange(k)), noneSince(i.counted, delayRange(k))]),
  ];
};
const attempt = (k: Keys, i: Input) => ({
  compare: [...free(k, i), created(k.tail), created(k.ticket(i.uuid))],
  success: record(ofShare(k, i.share), i),
  failure: [...who(k), get(k.tail)],
});
const place = (k: Keys, i: Input) => {
  const [own, shares, delays] = who(k);
  return [get(k.ticket(i.uuid)), own, get(k.tail), delays, shares];
};
const withdrawal = (k: Keys, i: Input) => [...who(k), ...(i.queued ? dequeue(k, i) : [])];

const shares: Partial<Record<Step, (k: Keys, i: Input) => object>> = {
  acquire: attempt,
  try: attempt,
  look: looking(place),
  scan: scanning(place),
  turn: (k, i) => ({
    compare: [...free(k, i), created(k.ticket(i.uuid), i.position)],
    success: [...record(ofShare(k, i.share), i), ...dequeue(k, i)],
    failure: [...who(k), get(k.ticket(i.uuid))],
  }),
  cancel: (k, i) => ({ success: [tombstone(k, i), ...withdrawal(k, i)] }),
  withdraw: (k, i) => ({ success: withdrawal(k, i) }),
  survey: (k) => ({ success: [...who(k), waiters(k)] }),
};

/** What to watch in order to see a key deleted: the first in line for a share watches all holders and delays. */
export function watchedFor(k: Keys, i: Input, key: string): object[] {
  const first = i.kind && key === k.field("uuid") ? [shareRange(k), [k.delay, delayRange(k)[1]] as const] : [];
  return [
    ...[key, k.ticket(i.uuid)].map((key) => ({ key: base64(key) })),
    ...first.map(([from, end]) => ({ key: base64(from), range_end: base64(end) })),
  ].map((range) => ({ ...range, filters: ["NOPUT"] }));
}

/** Who holds the lock, from the reads of these operations. */
function holdersIn(k: Keys, answer: TxnAnswer, own = 0, shares = 1, delays = 2): Holders {
  const found: Holders = { revision: answer.header.revision, shares: new Map(), delays: new Map() };
  found.whole = holderIn(k, keysIn(answer, own));
  for (const [segment, kvs] of bySegment(k, keysIn(answer, shares))) {
    const number = numberOf(k, segment);
    const holder = number ? holderIn(ofShare(k, number), kvs) : undefined;
    if (holder) found.shares.set(number, holder);
  }
  for (const kv of keysIn(answer, delays)) {
    const name = k.lock + text(kv.key).slice(k.delay.length);
    const delay = delayIn(kv, name);
    if (name === k.lock) found.delay = delay;
    else if (shareOf(k.lock, name)) found.delays.set(shareOf(k.lock, name), delay);
  }
  return found;
}

function bySegment(k: Keys, kvs: KeyValue[]): Map<string, KeyValue[]> {
  const all = new Map<string, KeyValue[]>();
  for (const kv of kvs) {
    const segment = text(kv.key).slice(k.prefix.length).split("/")[0] ?? "";
    all.set(segment, [...all.get(segment) ?? [], kv]);
  }
  return all;
}

/** The number of a share from the segment of its name; 0 for another lock with such a name. */
function numberOf(k: Keys, segment: string): number {
  try {
    return shareOf(k.lock, nameOf(segment));
  } catch {
    return 0;
  }
}

function earlier(holders: Holders, uuid: string): Verdict | undefined {
  const share = mineOf(holders, uuid);
  if (share === undefined) return undefined;
  const holder = share ? holders.shares.get(share) : holders.whole;
  return { verdict: "held_by_earlier_send", token: String(holder?.token), share };
}

const taken = (otherwise: (k: Keys, i: Input, answer: TxnAnswer, holders: Holders) => Verdict): Meaning =>
  (k, i, answer) => {
    if (answer.succeeded) return { verdict: "held", token: answer.header.revision };
    const holders = holdersIn(k, answer);
    return earlier(holders, i.uuid) ?? { ...otherwise(k, i, answer, holders), holders };
  };

const tried = taken((_, i, answer, holders) =>
  ({ verdict: !keysIn(answer, 3).length && hasRoom(holders, i) ? "again" : "refused" }));

const holdersPlaced = (k: Keys, answer: TxnAnswer) => holdersIn(k, answer, 1, 4, 3);

const placed: Meaning = (k, i, answer) => {
  const holders = holdersPlaced(k, answer);
  const mine = earlier(holders, i.uuid);
  if (mine) return mine;
  const ahead = keysIn(answer, 5)[0];
  if (!keysIn(answer, 0).length) return { verdict: "lost" };
  if (ahead) return { verdict: "wait", watch: text(ahead.key), before: ticketOf(k, ahead).ticket };
  if (hasRoom(holders, i)) return { verdict: "turn", before: "", holders };
  return { verdict: "wait", watch: k.field("uuid"), before: "", holders };
};

const meaningsOfShares: Partial<Record<Step, Meaning>> = {
  acquire: tried,
  try: tried,
  turn: taken((_, i, answer) =>
    ({ verdict: keysIn(answer, 3)[0]?.create_revision === i.position ? "again" : "lost" })),
  look: looked(placed, (k, i, answer) => mineOf(holdersPlaced(k, answer), i.before ?? "") !== undefined),
  scan: scanned(placed, 6),
  cancel: (k, i, answer) => ({ verdict: "cancelled", share: mineOf(holdersIn(k, answer, 1, 2, 3), i.uuid) }),
  withdraw: (k, i, answer) => ({ verdict: "again", share: mineOf(holdersIn(k, answer), i.uuid) }),
  survey: (k, i, answer) => {
    const holders = holdersIn(k, answer);
    return { verdict: "answered", holders, waiting: countWaiting(k, i, holders, keysIn(answer, 3)) };
  },
};
