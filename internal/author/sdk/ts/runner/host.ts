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
  /** The step that the present code belongs to. Node only. */
  currentStep?(): number | undefined;
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
  if (host.within) return host.within(step, fn);
  active.add(step);
  try {
    return await fn();
  } finally {
    active.delete(step);
  }
}

/** Where output without an owner goes. */
export function currentStep(): number {
  const known = host.currentStep?.();
  if (known !== undefined) return known;
  return active.size === 1 ? [...active][0] : jobLog;
}

/** Writes text to a log, line by line. */
export function log(step: number, text: string): void {
  for (const line of text.split('\n')) host.emit({ type: 'log.line', stepIndex: step, line });
}

let sleeps = 0;

/** A pause; gives false when the signal ended it early. */
export async function sleep(ms: number, signal?: { aborted: boolean; addEventListener: any; removeEventListener: any }): Promise<boolean> {
  if (signal?.aborted) return false;
  const id = `sleep-${++sleeps}`;
  const wake = () => void host.call('wake', { id });
  signal?.addEventListener('abort', wake);
  try {
    return await host.call('sleep', { id, ms });
  } finally {
    signal?.removeEventListener('abort', wake);
  }
}
