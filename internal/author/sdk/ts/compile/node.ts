// The compile program on node: one request a line on stdin, one marked answer a line on stdout. The author's own output
// goes to stderr, so that it cannot be taken for an answer.

import './console-node';
import { createInterface } from 'node:readline';
import './main';

const write = process.stdout.write.bind(process.stdout);
const program = (globalThis as any).__kiciCompile;

createInterface({ input: process.stdin }).on('line', (line) => {
  const { call, argument } = JSON.parse(line);
  let answer: unknown;
  try {
    answer = { result: program[call](argument) };
  } catch (e: any) {
    answer = { error: { message: String(e?.message ?? e), stack: String(e?.stack ?? '') } };
  }
  write(`\u0001kici ${JSON.stringify(answer)}\n`);
}).on('close', () => process.exit(0)); // a timer of the author's must not keep the process
