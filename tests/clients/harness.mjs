// What the tests of the clients share: tests by name, one line each, and helpers.
import assert from "node:assert/strict";

const tests = [];

export function test(name, run) {
  tests.push({ name, run });
}

// Runs all tests; the last line counts them. Exit status 1 if one failed.
export async function runAll() {
  let failed = 0;
  for (const { name, run } of tests) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (e) {
      failed++;
      console.log(`FAIL ${name}: ${e.stack ?? e}`);
    }
  }
  console.log(`${tests.length - failed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}

// The error that a promise ends with.
export async function failure(promise) {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  assert.fail("there was no error");
}

export const base = process.argv[2]; // http://127.0.0.1:PORT

// Waits until the server runs nothing any more: an aborted request has to end.
export async function idle() {
  for (let i = 0; i < 100; i++) {
    const health = await (await fetch(`${base}/health`)).json();
    if (health.running === 0) return;
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.fail("requests still run");
}
