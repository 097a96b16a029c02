// The host on node: everything is passed to the process that started node, over file descriptors 3 and 4, since the
// standard streams belong to the author's code. It is transformed alone and not bundled.

import { AsyncLocalStorage } from 'node:async_hooks';
import { setMaxListeners } from 'node:events';
import { writeSync } from 'node:fs';
import { Socket } from 'node:net';
import { pathToFileURL } from 'node:url';

const owner = new AsyncLocalStorage<number>();
const calls = new Map<number, { resolve: (v: any) => void; reject: (e: Error) => void }>();
const inbox: any[] = [];
let receiver: ((message: any) => void) | undefined;
let started: (message: any) => void;
let last = 0;

// The pipe is written synchronously: when the agent does not read, the job waits, and nothing is lost at exit.
function emit(message: object): void {
  const bytes = Buffer.from(`${JSON.stringify(message)}\n`);
  for (let at = 0; at < bytes.length;) {
    try {
      at += writeSync(4, bytes, at);
    } catch (e: any) {
      if (e.code !== 'EAGAIN') throw e;
    }
  }
}

function take(message: any): void {
  if (message.type === 'kici.result') {
    const call = calls.get(message.id);
    calls.delete(message.id);
    if (message.error !== undefined) call?.reject(new Error(message.error));
    else call?.resolve(message.value ?? undefined);
  } else if (message.type === 'kici.start') {
    started(message);
  } else if (receiver) {
    receiver(message);
    receiver = undefined;
  } else inbox.push(message);
}

(globalThis as any).__kiciHost = {
  emit,
  receive: () => (inbox.length ? Promise.resolve(inbox.shift()) : new Promise((resolve) => { receiver = resolve; })),
  call: (fn: string, arg: object = {}) => new Promise((resolve, reject) => {
    const id = ++last;
    calls.set(id, { resolve, reject });
    emit({ type: 'kici.call', id, fn, arg });
  }),
  within: (step: number, fn: () => Promise<unknown>) => owner.run(step, fn),
  currentStep: () => owner.getStore(),
  manyListeners: (signal: AbortSignal) => setMaxListeners(0, signal),
};

// Code that nobody started as part of a step (a listener, an emitter) has no owner of its own; the script guesses.
const stepNow = (): number => owner.getStore() ?? (globalThis as any).__kiciHost.ownerless?.() ?? -1;

// What the author's code prints belongs to the step that prints it.
const begun = new Map<string, string>();
const patch = (stream: any, name: string) => {
  stream.write = (chunk: any, encoding?: any, done?: any) => {
    const step = stepNow();
    const key = `${name}${step}`;
    const text = (begun.get(key) ?? '') + (typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8'));
    const lines = text.split('\n');
    begun.set(key, lines.pop()!);
    for (const line of lines) emit({ type: 'log.line', stepIndex: step, line });
    const callback = typeof encoding === 'function' ? encoding : done;
    if (callback) process.nextTick(callback);
    return true;
  };
};
patch(process.stdout, 'out');
patch(process.stderr, 'err');

function flush(): void {
  for (const [key, line] of begun) if (line) emit({ type: 'log.line', stepIndex: Number(key.slice(3)), line });
  begun.clear();
}

const crash = (rejection: boolean) => (e: any) => {
  flush();
  const text = e instanceof Error ? `${e.name}: ${e.message}` : String(e);
  emit({ type: 'kici.crash', rejection, text: `${rejection ? 'Unhandled rejection' : 'Uncaught'} ${text}`, stack: String(e?.stack ?? '') });
  process.exit(rejection ? 98 : 99);
};
process.on('unhandledRejection', crash(true));
process.on('uncaughtException', crash(false));
process.on('exit', flush);
// An abort comes as a message; the signals that go with it are not for node to die of.
process.on('SIGTERM', () => {});
process.on('SIGINT', () => {});

const input = new Socket({ fd: 3, readable: true, writable: false });
let rest: Buffer[] = [];
input.on('data', (chunk: Buffer) => {
  let from = 0;
  for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
    const line = Buffer.concat([...rest, chunk.subarray(from, at)]).toString('utf8');
    rest = [];
    from = at + 1;
    take(JSON.parse(line));
  }
  if (from < chunk.length) rest.push(chunk.subarray(from));
});
input.on('end', () => process.exit(1)); // the runner that started node has gone

const start = new Promise<any>((resolve) => { started = resolve; });
emit({ type: 'kici.node', version: process.version });
const { request, boot } = await start;
let passed = false;
try {
  await import(pathToFileURL(process.argv[2]).href);
} catch (e: any) {
  emit({ type: 'kici.loadFailed', message: e instanceof Error ? e.message : String(e), stack: String(e?.stack ?? '') });
  process.exit(1);
}
passed = await (globalThis as any).__kiciRun(request, boot);
flush();
emit({ type: 'kici.end', passed });
process.exit(passed ? 0 : 1);
