import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { RefusedError } from "../src/index.js";
import { fields, formatTime, reserved, segment } from "../src/record.js";
import { judgeFault } from "../src/transactions.js";

/** What is written as the protocol says. That all is read so, and all transactions, test/conformance shows. */
const protocol = process.env.PROTOCOL ?? join(__dirname, "..", "..", "..", "..", "docs", "protocol");
const vectors = JSON.parse(readFileSync(join(protocol, "vectors.json"), "utf8")) as {
  fields: { keys: string[]; keys_of_others: string[]; members: string[] };
  times: { about: string; text: string; seconds: number; nanoseconds: number; written?: string }[];
};

test("the fields are those of the protocol", () => {
  const { keys, keys_of_others, members } = vectors.fields;
  assert.deepEqual([...reserved].sort(), ["metadata", ...keys, ...keys_of_others, ...members].sort());
});

test("times round-trip", () => {
  for (const { about, text, seconds, nanoseconds, written = text } of vectors.times) {
    if (nanoseconds % 1e6 === 0) assert.equal(formatTime(seconds * 1000 + nanoseconds / 1e6), written, about);
  }
  assert.throws(() => segment("a\ud800b"), RefusedError, "half a surrogate pair");
});

test("wrapped errors of streams mean the same", () => {
  const error = { code: 16, message: "etcdserver: invalid auth token" };
  assert.equal(judgeFault({ status: 401, body: { error } })?.verdict, "login");
  assert.equal(judgeFault({ status: 200, body: { error } })?.verdict, "login");
  assert.equal(judgeFault({ status: 401, body: { error: "text", ...error } })?.verdict, "login");
});

test("records that the protocol forbids are refused before anything is sent", () => {
  const put = (purpose: string, attributes: Record<string, string | number | boolean>, backtrace = "") =>
    fields("u", { members: { purpose }, attributes, backtrace }, 1e12, { alertAfter: 1, autoUnlockAfter: 1 });
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`a${i}`, i]));
  assert.throws(() => put("x".repeat(1025), {}), /purpose has 1025 bytes/);
  assert.throws(() => put("a\ud800", {}), /not valid Unicode/);
  assert.throws(() => put("", many), /65 attributes/);
  assert.throws(() => put("", { "No": 1 }), /attribute name "No"/);
  assert.throws(() => put("", { purpose: "twice" }), /reserved by the protocol/);
  assert.throws(() => put("", { alive: "x" }), /reserved by the protocol/);
  assert.throws(() => put("", { ratio: NaN }), /want a string, a number or a boolean/);
  const full = Object.fromEntries(Array.from({ length: 64 }, (_, i) => [`a${i}`, "x".repeat(1024)]));
  assert.throws(() => put("", full), /more than 65536 bytes/);
  const { backtrace } = JSON.parse(put("", {}, "file.ts:1 in f\n".repeat(2000)).metadata) as { backtrace: string };
  assert.ok(Buffer.byteLength(backtrace) <= 16384);
  assert.ok(backtrace.endsWith("file.ts:1 in f\n... cut\n"), "it is cut at a line");
});
