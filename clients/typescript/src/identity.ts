/** Which process holds a lock, and which line of code took it. */

import { readFileSync, readlinkSync } from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, sep } from "node:path";
import { fileURLToPath } from "node:url";

import type { Members } from "./record.js";

export const version = "0.2.0";

const initialTimeNamespace = "time:[4026531834]";

/**
 * The members of a record that identify this process, so that its end can be proven. What cannot be learned is left
 * out: a wrong identity would prove the end of a process that lives.
 */
export function identity(env = process.env, read = readText, link = readLink): Members {
  const members = { hostname: hostname(), pid: process.pid, client: `typescript/${version}`, ...pod(env) };
  const boot_id = read("/proc/sys/kernel/random/boot_id").trim();
  const namespace = /^pid:\[([0-9]+)\]$/.exec(link("/proc/self/ns/pid"))?.[1];
  if (!boot_id) return members; // without it, process ids and ticks mean nothing
  if (!namespace) return { ...members, boot_id };
  const ownTime = !["", initialTimeNamespace].includes(link("/proc/self/ns/time")); // it counts other ticks
  const stat = read("/proc/self/stat");
  const start = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]; // field 22; the program's name may have blanks
  return {
    ...members, boot_id, pid_namespace: Number(namespace),
    process_start: start && !ownTime ? Number(start) : undefined,
  };
}

/** The pod and its container. Without the name or uid of a pod, the other variables are none of Kubernetes'. */
function pod(env: NodeJS.ProcessEnv): Members {
  const [pod_name, pod_uid] = [name(env.POD_NAME), name(env.POD_UID)];
  if (!pod_name && !pod_uid) return {};
  return { pod_namespace: name(env.POD_NAMESPACE), pod_name, pod_uid, container: name(env.CONTAINER_NAME) };
}

/** The text, if it can be a name: an environment that says something odd fails no lock. */
const name = (text = "") => /^[A-Za-z0-9._-]{1,253}$/.test(text) ? text : undefined;

/** Empty on another system than Linux. */
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
const library = [__dirname + sep, dirname(__dirname) + sep + "src" + sep]; // the latter with source maps

/** The call stack above this package, newest frame first, one `FILE:LINE in FUNCTION` a line. */
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
