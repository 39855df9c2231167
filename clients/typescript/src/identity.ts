/** The process that holds a lock, and the line of code that took it. */

import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, sep } from "node:path";
import { fileURLToPath } from "node:url";

import type { Members } from "./record.js";

export const version = "0.2.0";

const initialTimeNamespace = "time:[4026531834]";

/**
 * The members of a record that identify this process, so that its death can be proven. What cannot be read is left out:
 * a wrong identity would prove the death of a live process.
 */
export function identity(env = process.env, read = readText, link = readLink): Members {
  const members = { hostname: hostname(), pid: process.pid, client: `typescript/${version}`, ...pod(env) };
  const boot_id = read("/proc/sys/kernel/random/boot_id").trim();
  const namespace = /^pid:\[([0-9]+)\]$/.exec(link("/proc/self/ns/pid"))?.[1];
  if (!boot_id) return members; // without it, process ids and start times mean nothing
  if (!namespace) return { ...members, boot_id };
  const ownTime = !["", initialTimeNamespace].includes(link("/proc/self/ns/time")); // start times are shifted there
  const stat = read("/proc/self/stat");
  const start = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]; // field 22; program names may contain spaces
  return {
    ...members, boot_id, pid_namespace: Number(namespace),
    process_start: start && !ownTime ? Number(start) : undefined,
  };
}

/** The uuids of the holds under which this process runs, as `mutexctl run` passes them, for a ticket. */
export function under({ MUTEX_UNDER = "", MUTEX_UUID = "" } = process.env): string | undefined {
  const uuids = `${MUTEX_UNDER} ${MUTEX_UUID}`.match(/(?<!\S)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\S)/g) ?? [];
  return [...new Set(uuids)].slice(0, 16).join(" ") || undefined;
}

/** The pod and its container. Without a pod's name or uid, the other variables are not from Kubernetes. */
function pod(env: NodeJS.ProcessEnv): Members {
  const [pod_name, pod_uid] = [name(env.POD_NAME), name(env.POD_UID)];
  if (!pod_name && !pod_uid) return {};
  return { pod_namespace: name(env.POD_NAMESPACE), pod_name, pod_uid, container: name(env.CONTAINER_NAME) };
}

/** The text if it is a valid name: an odd environment variable must not fail a lock. */
const name = (text = "") => /^[A-Za-z0-9._-]{1,253}$/.test(text) ? text : undefined;

/** Empty on systems other than Linux. */
function orEmpty(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}

const readText = (file: string) => orEmpty(() => readFileSync(file, "utf8"));
const readLink = (file: string) => orEmpty(() => readlinkSync(file));

/** The name of the running program, for records without an owner. */
export const program = () => basename(process.argv[1] ?? process.argv0).replace(/\.[cm]?[jt]s$/, "");

const frames = 30;
const library = [__dirname + sep, dirname(__dirname) + sep + "src" + sep]; // the latter appears with source maps

/** The call stack outside this package, newest frame first, one `FILE:LINE in FUNCTION` per line. */
export function backtrace(): string {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = frames + 10;
  const stack = new Error().stack ?? "";
  Error.stackTraceLimit = limit;
  return frameLines(stack).filter(({ file }) => !library.some((own) => file.startsWith(own)))
    .slice(0, frames).map(({ file, line, name }) => `${file}:${line} in ${name}`).join("\n");
}

function frameLines(stack: string) {
  return stack.split("\n").flatMap((text) => {
    const shape = /^ +at (?:async )?(?:(.+) \()?(.+?):([0-9]+):[0-9]+\)?$/;
    const [, name = "<anonymous>", url, line] = shape.exec(text) ?? [];
    if (!url || !line) return [];
    return [{ name, line, file: url.startsWith("file://") ? fileURLToPath(url) : url }];
  });
}
