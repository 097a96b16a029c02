// The host: what the machine gives to this script. The embedded engine and node offer the same three functions, so that
// everything else is written once.

export interface Host {
  /** Sends one message: to the agent, or with a type of `kici.…` to the host itself. */
  emit(message: { type: string; [field: string]: unknown }): void;
  /** Waits for the next message of the agent. */
  receive(): Promise<any>;
  /** Lets the host do something that takes time or touches the machine. */
  call(fn: string, argument?: object): Promise<any>;
  /** Runs `fn` so that output without an owner (console, process.stdout) belongs to the step. Node only. */
  within?<T>(step: number, fn: () => Promise<T>): Promise<T>;
  /** The step that the present code belongs to, where that is known. Node only. */
  currentStep?(): number | undefined;
  /** Lets any number of commands listen to one signal. Node only: it warns of more than ten. */
  manyListeners?(signal: object): void;
  /** Set by this script: where output without an owner goes. */
  ownerless?(): number;
}

/** What the host says about itself when the job starts. */
export interface Boot {
  /** `embedded`, or the version of node. */
  host: string;
  /** Why the workflow runs on node. */
  why: string;
  /** Where steps run. */
  cwd: string;
  /** The environment of the runner. */
  env: Record<string, string>;
  /** Makes ids unique beyond this job. */
  nonce: string;
}

export const host: Host = (globalThis as any).__kiciHost;

/** The step index of the job's own log. */
export const jobLog = -1;

const active = new Set<number>();

/**
 * Runs `fn` as part of a step. Node knows to which step a line of code belongs at any time; the embedded engine does
 * not, so there output without an owner goes to the one step at work, or to the job while several are.
 */
export async function within<T>(step: number, fn: () => Promise<T>): Promise<T> {
  active.add(step);
  try {
    return await (host.within ? host.within(step, fn) : fn());
  } finally {
    active.delete(step);
  }
}

host.ownerless = () => (active.size === 1 ? [...active][0] : jobLog);

/** Where output of the present code goes. */
export function currentStep(): number {
  return host.currentStep?.() ?? host.ownerless!();
}

/** Writes text to a log, line by line. */
export function log(step: number, text: string): void {
  for (const line of text.split('\n')) host.emit({ type: 'log.line', stepIndex: step, line });
}

/** A span of time: `passed` gives true at its end, false when it was cancelled first. */
export interface Timer {
  passed: Promise<boolean>;
  cancel(): void;
}

let timers = 0;

export function timer(ms: number): Timer {
  const id = `timer-${++timers}`;
  let over = false;
  const passed: Promise<boolean> = host.call('sleep', { id, ms }).then((whole) => {
    over = true;
    return whole === true;
  });
  return { passed, cancel: () => { if (!over) void host.call('wake', { id }); } };
}

/** A pause; gives false when the signal ended it early. */
export async function sleep(ms: number, signal?: { aborted: boolean; addEventListener: any; removeEventListener: any }): Promise<boolean> {
  if (signal?.aborted) return false;
  const pause = timer(ms);
  signal?.addEventListener('abort', pause.cancel);
  try {
    return await pause.passed;
  } finally {
    signal?.removeEventListener('abort', pause.cancel);
  }
}
