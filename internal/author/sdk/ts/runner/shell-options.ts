// What `$` may be told in brackets, and what is wrong with it.

import { checkVariables, shown, suggest } from '@kici-dev/sdk/runtime';
import type { Signal } from './signal';

export interface Options {
  /** Relative to the folder of the step. */
  cwd?: string;
  /** Added to the step's environment; undefined takes a variable away. */
  env?: Record<string, string | undefined>;
  quiet?: boolean;
  verbose?: boolean;
  nothrow?: boolean;
  /** What the command reads: text, bytes or what another command printed. */
  stdin?: unknown;
  input?: unknown;
  /** Milliseconds, or a text such as `10s`. */
  timeout?: number | string;
  timeoutSignal?: string;
  /** Ends the command when it is aborted. */
  signal?: Signal;
  /** Of kill() and of an abort; SIGTERM. */
  killSignal?: string;
  stdio?: Stdio | [Stdio?, Stdio?, Stdio?];
}

export type Stdio = 'pipe' | 'inherit' | 'ignore';

const streams: unknown[] = ['pipe', 'inherit', 'ignore', undefined];

/** What each option must be; a check throws a TypeError. Those without a check may be anything. */
const checks: Record<string, ((value: any) => void) | undefined> = {
  cwd: (v) => must(typeof v === 'string' && v !== '', 'cwd must be the path of a folder', v),
  env: checkEnv,
  quiet: undefined,
  verbose: undefined,
  nothrow: undefined,
  stdin: undefined,
  input: undefined,
  timeout: milliseconds,
  timeoutSignal: checkSignal,
  signal: (v) => must(typeof v?.addEventListener === 'function', 'signal must be an AbortSignal', v),
  killSignal: checkSignal,
  stdio: (v) => must([v].flat().every((one) => streams.includes(one)), "stdio must be 'pipe', 'inherit' or 'ignore', or a list of those for stdin, stdout and stderr", v),
};

/** Throws a TypeError that names the option which cannot be followed. */
export function checkOptions(options: Options): void {
  for (const [name, value] of Object.entries(options)) {
    if (!Object.hasOwn(checks, name)) {
      const meant = suggest(name, Object.keys(checks));
      throw new TypeError(`$ has no option '${name}'${meant ? `; ${meant}` : ''}`);
    }
    if (value !== undefined) checks[name]?.(value);
  }
}

function must(right: boolean, what: string, value: unknown): void {
  if (!right) throw new TypeError(`${what}, not ${shown(value)}`);
}

function checkEnv(env: any): void {
  if (env === null || typeof env !== 'object') return must(false, 'env must be a map of variables', env);
  try {
    checkVariables(Object.fromEntries(Object.entries(env).filter(([, v]) => v !== undefined && v !== null)), 'env');
  } catch (e: any) {
    throw new TypeError(e.message);
  }
}

/** Throws a TypeError for what is no name of a signal. Which there are, the machine knows. */
export function checkSignal(signal: unknown): void {
  must(typeof signal === 'string' && /^SIG[A-Z0-9]+$/.test(signal), 'a signal must be named like SIGTERM', signal);
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000 };

/** The milliseconds of a time; 0 is no limit. */
export function milliseconds(time: unknown): number {
  if (typeof time === 'number' && time >= 0) return time;
  const match = typeof time === 'string' ? /^(\d+(?:\.\d+)?)(ms|s|m)$/.exec(time) : null;
  if (!match) throw new TypeError(`a time must be a number of milliseconds or like 500ms, 10s or 2m, not ${shown(time)}`);
  return Number(match[1]) * units[match[2]];
}
