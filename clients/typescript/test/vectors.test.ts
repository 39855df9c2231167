import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { readDelay, readEnding, readExtension, readRequest } from "../src/documents.js";
import { RefusedError } from "../src/index.js";
import { allOf, delayFor, nobody } from "../src/kinds.js";
import { fields, formatTime, nameOf, parseTime, readRecord, reserved, segment } from "../src/record.js";
import { bodyOf, verdictOf } from "../src/shares.js";
import { judgeFault, Keys, type Answer, type Input, type Step } from "../src/transactions.js";

const protocol = process.env.PROTOCOL ?? join(__dirname, "..", "..", "..", "..", "docs", "protocol");
const read = (file: string): unknown => JSON.parse(readFileSync(join(protocol, file), "utf8"));

interface Case { about: string }
const vectors = read("vectors.json") as {
  fields: { keys: string[]; keys_of_others: string[]; members: string[] };
  names: (Case & { name: string; segment: string })[];
  refused_names: (Case & { name?: string })[];
  refused_segments: (Case & { segment: string })[];
  times: (Case & { text: string; seconds: number; nanoseconds: number; written?: string })[];
  refused_times: (Case & { text: string })[];
  requests: DocumentCase[];
  extensions: DocumentCase[];
  endings: DocumentCase[];
  delays: DocumentCase[];
  records: (Case & { fields: VectorField[]; decoded: Record<string, string>; malformed?: boolean })[];
};
interface DocumentCase extends Case {
  uuid?: string;
  token?: number;
  key?: string;
  value?: string;
  value_base64?: string;
  decoded?: Record<string, unknown>;
}
interface VectorField { name: string; value?: string; value_base64?: string; mod_revision?: number }

test("the fields are those of the protocol", () => {
  const { keys, keys_of_others, members } = vectors.fields;
  assert.deepEqual([...reserved].sort(), ["metadata", ...keys, ...keys_of_others, ...members].sort());
});

test("names become segments and come back, as the vectors say", () => {
  for (const c of vectors.names) {
    assert.equal(segment(c.name), c.segment, c.about);
    assert.equal(nameOf(c.segment), c.name, c.about);
  }
  for (const c of vectors.refused_names) {
    if (c.name !== undefined) assert.throws(() => segment(c.name ?? ""), RefusedError, c.about);
  }
  for (const c of vectors.refused_segments) assert.throws(() => nameOf(c.segment), RefusedError, c.about);
  assert.throws(() => segment("a\ud800b"), RefusedError, "half a surrogate pair");
});

test("times are read strictly, and written as they were", () => {
  for (const c of vectors.times) {
    const { seconds, nanoseconds } = c;
    assert.deepEqual(parseTime(c.text), { seconds, nanoseconds }, c.about);
    const written = formatTime(seconds * 1000 + nanoseconds / 1e6);
    if (nanoseconds % 1e6 === 0) assert.equal(written, c.written ?? c.text, c.about);
  }
  for (const c of vectors.refused_times) assert.equal(parseTime(c.text), undefined, c.about);
});

test("records are read, whatever is wrong with them", () => {
  for (const c of vectors.records) {
    const all = c.fields.map((f) => ({
      name: f.name, modified: BigInt(f.mod_revision ?? 7),
      value: bytesOf(f),
    }));
    const got = readRecord(all, 7n);
    for (const name of ["uuid", "owner", "hostname", "purpose"] as const) {
      const raw = c.fields.some((f) => f.name === name && f.value_base64); // shown with U+FFFD, and not as unreadable
      if (!raw) assert.equal(got[name], c.decoded[name], c.about);
    }
    const times = { alert_at: got.alertAt, auto_unlock_at: got.unlockAt, locked_at: got.lockedAt };
    for (const [name, at] of Object.entries(times)) {
      const toMilliseconds = c.decoded[name]?.slice(0, "1553682600.123".length);
      assert.equal(at && formatTime(at.getTime()), toMilliseconds, `${c.about}: ${name}`);
    }
  }
});

const bytesOf = ({ value = "", value_base64 }: { value?: string; value_base64?: string }) =>
  value_base64 === undefined ? Buffer.from(value) : Buffer.from(value_base64, "base64");

test("documents of others are read, or ignored as a whole", () => {
  const readers = {
    requests: (c: DocumentCase) => readRequest(bytesOf(c), c.uuid ?? "", String(c.token)),
    extensions: (c: DocumentCase) => readExtension(bytesOf(c), c.uuid ?? "", String(c.token)),
    endings: (c: DocumentCase) => readEnding(bytesOf(c), String(c.token ?? c.decoded?.token)),
    delays: (c: DocumentCase) => readDelay(bytesOf(c), nameOf(c.key?.split("/").pop() ?? "")),
  };
  for (const [kind, read] of Object.entries(readers)) {
    for (const c of vectors[kind as keyof typeof readers]) {
      const got = read(c) as Record<string, unknown> | undefined;
      const isRead = got !== undefined && Object.keys(got).length > 0;
      assert.equal(isRead, c.decoded !== undefined, `${kind}: ${c.about}`);
      for (const name of ["by", "reason", "source", "seconds", "ended", "why", "owner", "hostname"]) {
        if (got?.[name] !== undefined) assert.equal(got[name], c.decoded?.[name], `${kind}: ${c.about}: ${name}`);
      }
    }
  }
});

test("transactions have exactly the bodies, and answers the meaning, that the protocol gives them", () => {
  const all = read("transactions.json") as {
    prefix: string;
    transactions: (Case & { step: Step; input: Input; body: object })[];
    verdicts: (Case & { step: Step; input: Input; answer: Answer; verdict: string; doubt?: boolean })[];
  };
  const kinds = read("kinds.json") as typeof all;
  const keysOf = (input: Input) => new Keys(all.prefix, input.locks?.[0]?.lock ?? input.lock);
  for (const c of [...all.transactions, ...kinds.transactions]) {
    const { step, input, about } = c;
    const body = bodyOf(step, keysOf(input), input);
    assert.deepEqual(JSON.parse(JSON.stringify(body)), c.body, about);
  }
  for (const { about, step, input, answer, ...want } of [...all.verdicts, ...kinds.verdicts]) {
    const { holders = nobody, ...verdict } = verdictOf(step, keysOf(input), input, answer);
    const delayed = delayFor(holders, input) !== undefined;
    const got: Record<string, unknown> = { ...verdict, holder: allOf(holders)[0]?.uuid ?? null, delayed };
    for (const [name, value] of Object.entries(want)) assert.deepEqual(got[name], value, `${step}: ${about}: ${name}`);
  }
  assert.ok(all.transactions.length > 20 && all.verdicts.length > 100);
});

test("errors of streams are wrapped, and mean the same", () => {
  const error = { code: 16, message: "etcdserver: invalid auth token" };
  assert.equal(judgeFault({ status: 401, body: { error } })?.verdict, "login");
  assert.equal(judgeFault({ status: 200, body: { error } })?.verdict, "login");
  assert.equal(judgeFault({ status: 401, body: { error: "text", ...error } })?.verdict, "login");
});

test("what the protocol forbids in a record is refused before anything is sent", () => {
  const put = (purpose: string, attributes: Record<string, string | number | boolean>, backtrace = "") =>
    fields("u", { members: { purpose }, attributes, backtrace }, 1e12, { alertAfter: 1, unlockAfter: 1 });
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`a${i}`, i]));
  assert.throws(() => put("x".repeat(1025), {}), /purpose has 1025 bytes/);
  assert.throws(() => put("a\ud800", {}), /not valid Unicode/);
  assert.throws(() => put("", many), /65 attributes/);
  assert.throws(() => put("", { "No": 1 }), /attribute name "No"/);
  assert.throws(() => put("", { purpose: "twice" }), /belongs to the protocol/);
  assert.throws(() => put("", { alive: "x" }), /belongs to the protocol/);
  assert.throws(() => put("", { ratio: NaN }), /want text, a number or a boolean/);
  const full = Object.fromEntries(Array.from({ length: 64 }, (_, i) => [`a${i}`, "x".repeat(1024)]));
  assert.throws(() => put("", full), /more than 65536 bytes/);
  const { backtrace } = JSON.parse(put("", {}, "file.ts:1 in f\n".repeat(2000)).metadata) as { backtrace: string };
  assert.ok(Buffer.byteLength(backtrace) <= 16384);
  assert.ok(backtrace.endsWith("file.ts:1 in f\n... cut\n"), "it is cut at a line");
});
