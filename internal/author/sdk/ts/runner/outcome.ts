// Waiting for the author's functions: their end, the end of their time, or the end of the job, whichever comes first.

import { host, timer, type Timer } from './host';
import type { ShellScope } from './shell';
import { show } from './show';
import { AbortError, type Controller } from './signal';

export type Outcome = { value: unknown } | { error: any } | { expired: true } | { aborted: true };

/** How long a function may still run after its signal was aborted, before it is left to itself. */
const abortGraceMs = 1000;
/** How long the end of killed commands is awaited; the host kills them by force well before. */
const killGraceMs = 5000;

/** What an attempt is about: the guard of the host ends it when it does not yield. */
export interface Guarded {
  stepIndex: number;
  stepName: string;
  /** The error of the job, where it is no step that does not yield. */
  failure?: string;
}

/** The time limit of an attempt. It can be stopped while a person is waited for, and begins anew afterwards. */
export class Clock {
  readonly expired: Promise<void>;
  private expire!: () => void;
  private limit?: Timer;

  constructor(private readonly ms: number, private readonly guarded?: Guarded) {
    this.expired = new Promise((resolve) => { this.expire = resolve; });
  }

  start(): void {
    if (this.guarded) host.emit({ type: 'kici.guard', ...this.guarded, ms: this.ms });
    const limit = timer(this.ms);
    this.limit = limit;
    void limit.passed.then((passed) => { if (passed && this.limit === limit) this.expire(); });
  }

  stop(): void {
    if (this.guarded) host.emit({ type: 'kici.guard', ...this.guarded, ms: 0 });
    this.limit?.cancel();
    this.limit = undefined;
  }
}

/** Runs `fn` and gives its outcome. Without end in time its signal is aborted and its commands are killed first. */
export async function attempt(fn: (clock: Clock) => unknown, own: Controller, scope: ShellScope, ms: number, late: string, guarded?: Guarded): Promise<Outcome> {
  const clock = new Clock(ms, guarded);
  let onAbort!: () => void;
  const aborted = new Promise<Outcome>((resolve) => { onAbort = () => resolve({ aborted: true }); });
  own.signal.addEventListener('abort', onAbort);
  clock.start();
  const ran: Promise<Outcome> = new Promise((resolve) => resolve(fn(clock))).then((value) => ({ value }), (error) => ({ error: error ?? nothing(error) }));
  const expired = clock.expired.then((): Outcome => ({ expired: true }));
  const first = own.signal.aborted ? { aborted: true as const } : await Promise.race([ran, aborted, expired]);
  own.signal.removeEventListener('abort', onAbort);
  clock.stop();
  if ('expired' in first) own.abort(new AbortError(late));
  if ('expired' in first || 'aborted' in first) {
    await within(abortGraceMs, ran);
    await within(killGraceMs, Promise.all(scope.running));
  }
  return first;
}

/** Waits for the promise, but no longer than that. */
async function within(ms: number, promise: Promise<unknown>): Promise<void> {
  const limit = timer(ms);
  await Promise.race([promise, limit.passed]);
  limit.cancel();
}

// nothing stands for what is thrown without being anything: a failure always has words.
function nothing(thrown: null | undefined): Error {
  return Object.assign(new Error(`${thrown} was thrown`), { stack: undefined });
}

const maxCauses = 10;

/** Shows where in the author's file an error came from, below a text, and what lies behind it. */
export function trace(stepIndex: number, text: string, e: any): void {
  host.emit({ type: 'kici.trace', stepIndex, text: [text, ...causesOf(e).map((cause) => `    because of ${cause}`)].join('\n'), stack: String(e?.stack ?? '') });
}

// causesOf gives the messages of an error's causes, and of the errors that it stands for.
function causesOf(e: any, left = maxCauses): string[] {
  if (e === null || typeof e !== 'object' || left <= 0) return [];
  const inner = [...(Array.isArray(e.errors) ? e.errors : []), ...(e.cause === undefined ? [] : [e.cause])];
  return inner.slice(0, left).flatMap((c) => [describeError(c).message, ...causesOf(c, left - 1)]).slice(0, left);
}

/** An error as the agent's messages have it. */
export function describeError(e: any): { message: string; exitCode?: number; signal?: string } {
  const message = e instanceof Error || typeof e?.message === 'string' ? String(e.message) : show(e);
  return {
    message: message || (e?.name ?? 'unknown error'),
    ...(typeof e?.exitCode === 'number' && { exitCode: e.exitCode }),
    ...(typeof e?.signal === 'string' && { signal: e.signal }),
  };
}
