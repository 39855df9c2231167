import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text as textOf } from "node:stream/consumers";
import { after, before, test } from "node:test";

import { backtrace, identity, version } from "../src/identity.js";
import { checkNode } from "../src/node.js";
import { Etcd, eventually, Proxy } from "./etcd.js";

let etcd: Etcd;
let dir: string;
before(async () => {
  etcd = await Etcd.start();
  dir = mkdtempSync(join(tmpdir(), "clustermutex-"));
});
after(async () => {
  await etcd.stop();
  rmSync(dir, { recursive: true });
});

const root = join(__dirname, "..", "..");

/** Runs a program that has a client named locks, and returns what it wrote once it has ended by itself. */
const run = (program: string) => start(program).output;

function start(program: string, endpoint = etcd.endpoint) {
  const file = join(mkdtempSync(join(dir, "run-")), "program.cjs");
  const library = JSON.stringify(join(root, "build", "src", "index.js"));
  writeFileSync(file, `const { Client } = require(${library}); const locks = new Client(process.argv[2]);\n${program}`);
  const options = ["--unhandled-rejections=strict", file, endpoint];
  const child = spawn(process.execPath, options, { stdio: ["ignore", "pipe", "pipe"] });
  const output = Promise.all([textOf(child.stdout), textOf(child.stderr)]).then((both) => both.join(""));
  const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  return { child, output, ended };
}

test("a Node that is too old is rejected", () => {
  checkNode("20.0.0");
  checkNode("100.1.0");
  assert.throws(() => checkNode("18.19.0"), /needs Node 20 or later, but this is Node 18\.19\.0/);
});

test("a process ends by itself after a release", async () => {
  const program = "locks.with('a', (lock) => lock.alive()).then(() => console.log('done'))";
  assert.equal(await run(program), "done\n");
});

test("a process that never releases its lock still ends, also with a heartbeat", async () => {
  const program = "locks.lock('b', { heartbeat: true }).then(() => setTimeout(() => console.log('done'), 300))";
  assert.equal(await run(program), "done\n");
});

test("a process whose work only waits for the loss of its lock does not end before it", async () => {
  const lost = "(lock) => new Promise((resolve) => lock.signal.addEventListener('abort', () => resolve(lock.lost)))";
  const say = `(lock) => (${lost})(lock).then(console.log)`;
  const programs = [
    `locks.with("work", { autoUnlockAfter: 9 }, ${say})`,
    `locks.oncePer("job", 60, ${say}, { autoUnlockAfter: 9 })`,
    `locks.campaign("leader", { life: 9, check: () => false }).then(${say})`,
  ];
  assert.deepEqual(await Promise.all(programs.map(run)), programs.map(() => "deadline\n"));
});

test("a process that resigned ends by itself", async () => {
  const began = performance.now();
  const program = "locks.campaign('resigns').then((lead) => lead.release()).then(() => console.log('done'))";
  assert.equal(await run(program), "done\n");
  assert.ok(performance.now() - began < 15_000);
});

test("a process that waits for a lock does not end before it has it", async () => {
  const program = `
    locks.lock("c").then((lock) => setTimeout(() => lock.release(), 500));
    locks.lock("c").then((lock) => lock.release()).then(() => console.log("both"));`;
  assert.equal(await run(program), "both\n");
});

/** Takes a lock, waits for it once more, and then ends in some way. */
const holding = (end: string, options = "{}") => `
  const mine = new Client(process.argv[2], ${options});
  mine.lock("end").then(() => {
    mine.lock("end");
    setTimeout(() => { ${end} }, 300);
    setInterval(() => undefined, 1000);
  });`;

const isQueued = async () => Object.keys(await etcd.read("/mutexes/.queue/end/")).length === 2;

/** Runs the program until it ends, by a signal if one is given, and returns how, and what it left in etcd. */
async function ending(program: string, signal?: NodeJS.Signals) {
  const { child, ended } = start(program);
  if (signal) {
    await eventually("a waiter", isQueued);
    child.kill(signal);
  }
  const [code, by] = await ended;
  const left = [await etcd.read("/mutexes/end/"), await etcd.read("/mutexes/.queue/end/")];
  await etcd.remove("/mutexes/end/");
  await etcd.remove("/mutexes/.queue/end/");
  return { how: by ?? code, left: left.flatMap((keys) => Object.keys(keys)).length };
}

for (const [what, program, signal, how] of [
  ["SIGTERM", holding(""), "SIGTERM", "SIGTERM"],
  ["SIGINT", holding(""), "SIGINT", "SIGINT"],
  ["SIGHUP", holding(""), "SIGHUP", "SIGHUP"],
  ["exit", holding("process.exit(3)"), undefined, 3],
  ["an unhandled error", holding("throw new Error('mine')"), undefined, 1],
  ["an unhandled rejection", holding("Promise.reject(new Error('mine'))"), undefined, 1],
  ["the end of its work", "locks.lock('end', { heartbeat: true })", undefined, 0],
  ["exit in its own handler", holding("") + "process.once('SIGTERM', () => process.exit(4))", "SIGTERM", 4],
] as const) {
  test(`a process that ends by ${what} releases its lock and its ticket, and ends as usual`, async () => {
    assert.deepEqual(await ending(program, signal), { how, left: 0 });
  });
}

for (const [what, program, signal, how] of [
  ["SIGKILL", holding(""), "SIGKILL", "SIGKILL"],
  ["SIGTERM, with releaseAtExit off", holding("", "{ releaseAtExit: false }"), "SIGTERM", "SIGTERM"],
] as const) {
  test(`a process that ends by ${what} leaves its lock behind`, async () => {
    assert.deepEqual(await ending(program, signal), { how, left: 6 });
  });
}

test("a process ends without etcd", async () => {
  const proxy = await Proxy.start(etcd.endpoint);
  try {
    const { child, ended } = start(holding("console.log('holding')"), proxy.endpoint);
    await once(child.stdout, "data");
    proxy.cut();
    child.kill("SIGTERM");
    assert.deepEqual(await ended, [null, "SIGTERM"]);
  } finally {
    proxy.stop();
    await etcd.remove("/mutexes/end/");
  }
});

test("the backtrace has FILE:LINE in FUNCTION, newest first, without the library", async () => {
  const program = `
    const own = new Client(process.argv[2], { releaseAtExit: false });
    async function inner() { return own.lock("trace"); }
    async function outer() { return await inner(); }
    outer().then((lock) => { console.log(__filename); return new Promise((end) => setTimeout(end, 0)); });`;
  const file = (await run(program)).trim();
  const { "/mutexes/trace/metadata": metadata = "" } = await etcd.read("/mutexes/trace/");
  const { backtrace: trace } = JSON.parse(metadata) as { backtrace: string };
  const lines = trace.split("\n");
  assert.equal(lines[0], `${file}:4 in inner`);
  assert.equal(lines[1], `${file}:5 in outer`);
  assert.ok(!trace.includes(join("build", "src")));
  for (const line of lines) assert.match(line, /^\S.*:[0-9]+ in .+$/);
  assert.ok(backtrace().split("\n").length <= 30);
});

test("a process identifies itself by what it can read, and guesses nothing", () => {
  const files: Record<string, string> = {
    "/proc/sys/kernel/random/boot_id": "boot\n",
    "/proc/self/ns/pid": "pid:[4026531836]",
    "/proc/self/ns/time": "time:[4026531834]",
    "/proc/self/stat": `17 (a) b) S 1 17 17 0 -1 4194560 ${"1 ".repeat(12)}812345 1 2\n`,
  };
  const read = (file: string) => files[file] ?? "";
  const env = { POD_NAMESPACE: "billing", POD_NAME: "invoices-7d4b9", POD_UID: "9d7c9a9e", CONTAINER_NAME: "worker" };
  const { boot_id, pid_namespace, process_start, pod_uid, container } = identity(env, read, read);
  assert.deepEqual([boot_id, pid_namespace, process_start, pod_uid, container],
    ["boot", 4026531836, 812345, "9d7c9a9e", "worker"]);
  const outside = { CONTAINER_NAME: "worker", POD_NAMESPACE: "billing" };
  const { container: strange, pod_namespace } = identity(outside, read, read);
  assert.deepEqual([strange, pod_namespace], [undefined, undefined], "outside of a pod, the names are another's");
  const { pod_name } = identity({ ...env, POD_NAME: "a\nb" }, read, read);
  assert.equal(pod_name, undefined, "no name");
  files["/proc/self/ns/time"] = "time:[4026532999]";
  assert.equal(identity({}, read, read).process_start, undefined, "a time namespace counts other ticks");
  delete files["/proc/sys/kernel/random/boot_id"];
  assert.equal(identity({}, read, read).pid_namespace, undefined);
});

test("the version is that of the package", () => {
  const about = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
  assert.equal(version, about.version);
});
