/** Single HTTP requests to members of etcd. */

import { readFileSync, statSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { createSecureContext } from "node:tls";

import { RefusedError } from "./errors.js";
import { parseObject } from "./record.js";
import type { Answer } from "./transactions.js";

/** PEM files. They are read again when one of them changes. */
export interface Files { ca: string; cert: string; key: string }

export interface Exchange {
  /** Including the endpoint. */
  url: string;
  body: string;
  /** The token of a login. */
  token: string;
  /** Time limit; 0 for a watch, which has no end. */
  seconds: number;
  signal?: AbortSignal | undefined;
  background?: boolean;
}

/** No part of the request has left this process. */
export class UnsentError extends Error {}

/** The certificate of the member is not trusted, or is another host's. */
export class UntrustedError extends UnsentError {}

const keepAlive = { keepAlive: true, keepAliveMsecs: 10_000 }; // to notice a peer that vanished silently

export class Transport {
  readonly #files: Files;
  readonly #agents = { "http:": new http.Agent(keepAlive), "https:": new https.Agent(keepAlive) };
  #tls: { ca?: Buffer; cert?: Buffer; key?: Buffer };
  #state: string;

  constructor(files: Files) {
    const { ca, cert, key } = files; // and nothing else of the options
    this.#files = { ca, cert, key };
    try {
      this.#state = this.#stat();
      this.#tls = this.#read();
    } catch (error) {
      throw new RefusedError(`certificates: ${reasonOf(error)}`);
    }
  }

  /** The certificates for a new connection, as they are now. While files are being replaced, the previous ones stay. */
  #current() {
    try {
      const state = this.#stat();
      if (state !== this.#state) {
        const tls = this.#read();
        createSecureContext(tls); // throws if certificate and key do not fit
        this.#tls = tls;
        this.#state = state;
      }
    } catch {
      // The next connection tries again.
    }
    return this.#tls;
  }

  /** Which versions of the files there are. */
  #stat(): string {
    const { ca, cert, key } = this.#files;
    const versions = [ca, cert, key].map((file) => {
      if (!file) return "";
      const { ino, size, mtimeMs } = statSync(file);
      return [ino, size, mtimeMs].join(" ");
    });
    return versions.join();
  }

  #read() {
    const { ca, cert, key } = this.#files;
    return {
      ...(ca && { ca: readFileSync(ca) }),
      ...(cert && { cert: readFileSync(cert) }),
      ...(key && { key: readFileSync(key) }),
    };
  }

  /** Sends one request and returns its answer. */
  async exchange(what: Exchange): Promise<Answer> {
    const response = await this.post(what);
    const body = parseObject(await textOf(response));
    return { status: response.statusCode ?? 0, ...(Object.keys(body).length && { body }) };
  }

  /** Sends one request and resolves when its answer begins. Rejects with an UnsentError if no connection was made. */
  post({ url, body, token, seconds, signal, background }: Exchange): Promise<http.IncomingMessage> {
    const { protocol } = new URL(url) as { protocol: "http:" | "https:" };
    const headers = {
      "content-type": "application/json", "content-length": Buffer.byteLength(body),
      "grpc-metadata-hasleader": "true", // makes a member without a leader refuse
      ...(token && { authorization: token }),
    };
    const files = protocol === "https:" ? this.#current() : {};
    const agent = seconds ? this.#agents[protocol] : false; // a watch has a connection of its own
    return new Promise((resolve, reject) => {
      let response: http.IncomingMessage | undefined;
      const request = (protocol === "https:" ? https : http).request(
        url, { method: "POST", headers, agent, ...files, ...(signal && { signal }) },
        (begun) => resolve(response = begun));
      let connected = false;
      request.on("socket", (socket) => {
        if (background) socket.unref();
        if (!agent) socket.setKeepAlive(true, keepAlive.keepAliveMsecs);
        connected = !socket.connecting; // true if the socket is reused
        if (!connected) socket.once(protocol === "https:" ? "secureConnect" : "connect", () => connected = true);
      });
      request.on("error", (error) => reject(connected ? error : unsent(error, request.socket as Verified | null)));
      if (seconds) {
        const silence = new Error(`no answer in ${seconds.toFixed(1)} s`);
        const timer = setTimeout(() => (response ?? request).destroy(silence), seconds * 1000);
        if (background) timer.unref();
        request.on("close", () => clearTimeout(timer));
      }
      request.end(body);
    });
  }
}

/** Reads the whole answer. */
function textOf(response: http.IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = "";
    response.setEncoding("utf8").on("data", (chunk: string) => text += chunk);
    response.on("end", () => resolve(text)).on("error", reject);
  });
}

/** A socket that knows whether its peer's certificate was accepted. */
interface Verified { authorizationError?: unknown }

function unsent(error: Error, socket: Verified | null): UnsentError {
  return new (socket?.authorizationError ? UntrustedError : UnsentError)(reasonOf(error));
}

/** The message of an error. Node's errors for several addresses have none of their own. */
export function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && !error.message) return error.errors.map(reasonOf).join(", ");
  const text = error instanceof Error ? error.message || error.name : String(error);
  return text.includes("alert certificate expired") ? "etcd refuses the client certificate: it has expired" : text;
}
