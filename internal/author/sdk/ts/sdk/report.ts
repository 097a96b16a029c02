// What the description of a workflow asks of its host, and where it puts what it finds wrong.

import type { LabelMatcher, ReadLabel } from './labels';

/** A mistake or a doubt, with the stack of where the thing was made. */
export interface Problem {
  severity: 'error' | 'warning';
  code: string;
  message: string;
  suggestion?: string;
  stack: string;
}

/** A place in a file of the author's, counted from 1. */
export interface SourceLocation {
  file: string;
  line: number;
  column: number;
}

/** The host's answers. A program without a compiler behind it answers undefined: then there are no places and every
 * function counts as one that only an agent can evaluate. */
export interface Resolver {
  /** The place of a stack. */
  locate(stack: string): SourceLocation | undefined;
  /** The text of a function that a server may evaluate by itself, undefined for any other. `stack` is that of the job that
   * has it. */
  inline(text: string, stack: string): string | undefined;
  /** The matcher of a label that is text. Throws an Error for a glob that cannot be one. */
  label: ReadLabel;
  /** Whether a regular expression of a label is safe; the reason if it is not. */
  guard(source: string, flags: string): string | undefined;
  /** Whether a time table is one that servers read; the reason if it is not. */
  cron(expression: string, timezone: string): string | undefined;
}

/** A resolver that knows nothing: every text is a label as it stands. */
export const noResolver: Resolver = {
  locate: () => undefined, inline: () => undefined, label: (value) => ({ kind: 'exact', value }), guard: () => undefined, cron: () => undefined,
};

/** What a host says of a label. */
export interface LabelReading {
  matcher?: LabelMatcher;
  error?: string;
}

/** The matcher of a reading; its error is thrown. */
export function matcherOf({ matcher, error }: LabelReading): LabelMatcher {
  if (!matcher) throw Object.assign(new Error(error), { suggestion: 'write the labels out, or use a regular expression' });
  return matcher;
}

/** Collects problems while one workflow file is described. */
export class Report {
  readonly problems: Problem[] = [];
  constructor(readonly file: string, readonly resolver: Resolver) {}

  error(code: string, stack: string, message: string, suggestion?: string): void {
    this.problems.push({ severity: 'error', code, message, stack, ...(suggestion && { suggestion }) });
  }
  warn(code: string, stack: string, message: string, suggestion?: string): void {
    this.problems.push({ severity: 'warning', code, message, stack, ...(suggestion && { suggestion }) });
  }
  /** Runs a reader that throws at a mistake, and reports that; gives undefined then. */
  try<T>(code: string, stack: string, prefix: string, f: () => T): T | undefined {
    try {
      return f();
    } catch (e: any) {
      this.error(code, stack, `${prefix}${e.message}`, e.suggestion);
      return undefined;
    }
  }
}

/** An object without the keys whose value is undefined or false-by-absence; the order of keys stays. */
export function compact<T extends Record<string, unknown>>(o: T): Partial<T> {
  return Object.fromEntries(Object.entries(o).filter(([, v]) => v !== undefined)) as Partial<T>;
}

/** A flag as lock files have it: true or left out. */
export const flag = (value: unknown): true | undefined => (value ? true : undefined);

const maxShown = 80;

function asJSON(value: unknown): string {
  try {
    return JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v)) ?? typeof value;
  } catch {
    return 'an object that JSON cannot hold';
  }
}

/** A value as messages quote it. */
export function shown(value: unknown): string {
  if (value instanceof RegExp) return `the regular expression ${value}`;
  if (value instanceof Promise) return 'a promise';
  if (typeof value === 'function') return 'a function';
  const tag = (value as any)?._tag;
  if (typeof tag === 'string') return `a ${tag}`;
  if (typeof value === 'bigint') return `${value}n`;
  const text = typeof value === 'number' || typeof value === 'symbol' ? String(value) : asJSON(value);
  return text.length > maxShown ? `${text.slice(0, maxShown)}…` : text;
}
