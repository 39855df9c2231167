// Takes and releases a lock as often as each line of standard input says, and prints the microseconds of each.

const { createInterface } = require("node:readline");

const [library, endpoint] = process.argv.slice(2);
const { Client } = require(library);
const locks = new Client(endpoint, { owner: "bench" });

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const took = [];
    for (let n = Number(line); n > 0; n--) {
      const began = process.hrtime.bigint();
      await locks.with("bench/typescript", () => {});
      took.push((process.hrtime.bigint() - began) / 1000n);
    }
    console.log(took.join(" "));
  }
}

main();
