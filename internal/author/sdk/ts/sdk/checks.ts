// Waiting for something to become true, and steps that change only what is not yet as wanted.

import { step } from './core';
import { shown } from './report';
import { currentKiciApi } from './runtime';
import { blamed } from './site';

/** The error of a wait whose time ran out. */
export class WaitForTimeoutError extends Error {
  readonly attempts: number;
  readonly timeoutMs: number;
  constructor(name: string, timeoutMs: number, attempts: number, cause?: unknown) {
    super(`${name}: timed out after ${timeoutMs}ms (attempts=${attempts})`, cause === undefined ? undefined : { cause });
    this.name = 'WaitForTimeoutError';
    this.attempts = attempts;
    this.timeoutMs = timeoutMs;
  }
}

const pause = (ms: number) => new Promise<void>((resolve) => { setTimeout(resolve, ms); });

/** How a wait ended. */
export interface WaitResult {
  outcome: 'succeeded' | 'timed-out';
  /** What the check gave, or what onSuccess or onTimeout made of it. */
  value: any;
  elapsedMs: number;
  attempts: number;
}

/** Asks `check` until it gives something other than null. A throwing check counts as null unless `swallowErrors` is
 * false. It is asked a last time when the time runs out; then `onTimeout` decides the value, else WaitForTimeoutError is
 * thrown, whose cause is what the last check threw. */
export async function waitFor(options: any): Promise<WaitResult> {
  const { name, check, intervalMs, timeoutMs, initialDelayMs, swallowErrors = true, onSuccess, onTimeout, signal } = waitOptions(options);
  const begin = Date.now();
  const elapsed = () => Date.now() - begin;
  console.log(`→ ${name} — waiting (timeout=${timeoutMs}ms, interval=${intervalMs}ms)`);
  if (initialDelayMs > 0) await pause(initialDelayMs);
  for (let attempts = 1; ; attempts++) {
    signal?.throwIfAborted();
    let value: any = null;
    let cause: unknown;
    try {
      value = await check();
    } catch (error) {
      if (!swallowErrors) throw error;
      cause = error;
    }
    if (value !== null && value !== undefined) {
      console.log(`✓ ${name} — succeeded after ${elapsed()}ms (attempts=${attempts})`);
      return { outcome: 'succeeded', value: onSuccess ? ((await onSuccess(value)) ?? value) : value, elapsedMs: elapsed(), attempts };
    }
    const left = timeoutMs - elapsed();
    if (left <= 0) {
      console.log(`✗ ${name} — timed out after ${timeoutMs}ms (attempts=${attempts})`);
      const error = new WaitForTimeoutError(name, timeoutMs, attempts, cause);
      if (!onTimeout) throw error;
      return { outcome: 'timed-out', value: await onTimeout(error), elapsedMs: elapsed(), attempts };
    }
    await pause(Math.min(intervalMs, left));
  }
}

const waitDefaults = { intervalMs: 2000, timeoutMs: 60000, initialDelayMs: 0 };

// waitOptions fills in what is not given and refuses what cannot be: a check that is none would only be seen as a wait
// without end.
function waitOptions(options: any): any {
  const { name = 'waitFor' } = options ?? {};
  const lacks = needed(options, ['check']) ?? notFunctions(options, ['onSuccess', 'onTimeout']);
  if (lacks !== undefined) throw new TypeError(`${name} ${lacks}`);
  const all: any = { ...options, name };
  for (const [key, fallback] of Object.entries(waitDefaults)) {
    all[key] ??= fallback;
    if (!(typeof all[key] === 'number' && all[key] >= 0)) throw new TypeError(`${name}: ${key} must be a number of milliseconds, 0 or more, not ${shown(all[key])}`);
  }
  return all;
}

// needed tells which function the options lack, in words that go on after the name of a thing.
function needed(options: any, names: string[]): string | undefined {
  const name = names.find((n) => typeof options?.[n] !== 'function');
  return name && `needs a function ${name}${options?.[name] === undefined ? '' : `, not ${shown(options[name])}`}`;
}

function notFunctions(options: any, names: string[]): string | undefined {
  return needed(options, names.filter((n) => options?.[n] !== undefined));
}

/** A step that waits; its check gets the step's context. An object that the check gives becomes the step's outputs. */
export function waitForStep(name: string, options: any): any {
  const { check, intervalMs, timeoutMs, initialDelayMs, swallowErrors, onSuccess, onTimeout, ...rest } = options ?? {};
  const run = async (ctx: any) => {
    const { value } = await waitFor({
      name, intervalMs, timeoutMs, initialDelayMs, swallowErrors, signal: ctx.signal,
      check: () => check(ctx),
      onSuccess: onSuccess && ((v: any) => onSuccess(v, ctx)),
      onTimeout: onTimeout && ((e: any) => onTimeout(e, ctx)),
    });
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : undefined;
  };
  return blamed(step(name, { ...rest, run }), needed(options, ['check']) ?? notFunctions(options, ['onSuccess', 'onTimeout']));
}

/** Waits until the host is known as live again, and gives its entry. */
export async function waitForHostAlive(agentId: string, options: any = {}): Promise<any> {
  if (typeof agentId !== 'string' || agentId === '') throw new TypeError(`waitForHostAlive needs the id of an agent, not ${shown(agentId)}`);
  const api = currentKiciApi();
  const check = async () => {
    const host = await api.inventory.get(agentId);
    return host?.status === 'ready' ? host : null;
  };
  const { intervalMs = 3000, timeoutMs = 300000, ...rest } = options;
  return (await waitFor({ name: `waitForHostAlive(${agentId})`, ...rest, intervalMs, timeoutMs, check })).value;
}

/**
 * Asks for a reboot of the host this job runs on; with the id of another agent it then waits until that one is live. The host
 * itself reboots once the job has ended, so nothing in the job can wait for that: its own id is as good as none.
 */
export async function restartHost(options: any = {}): Promise<any> {
  const { deadlineMs, agentId, ...wait } = options;
  const api = currentKiciApi();
  const until = async () => agentId && (await api.inventory.get(agentId))?.rebootUntil;
  const before = await until();
  await api.host.requestReboot(deadlineMs === undefined ? {} : { deadlineMs });
  return agentId === undefined || (await until()) !== before ? undefined : waitForHostAlive(agentId, wait);
}

/** Inside a step: looks, and changes only when something is not as wanted. It takes no part in check mode. */
export async function idempotent(options: any): Promise<{ changed: boolean; drift: any; result: any }> {
  const lacks = needed(options, ['check', 'apply']);
  if (lacks !== undefined) throw new TypeError(`idempotent ${lacks}`);
  const drift = await options.check();
  if (drift === null || drift === undefined) return { changed: false, drift: null, result: undefined };
  return { changed: true, drift, result: await options.apply(drift) };
}

/** A step made of `idempotent`. */
export function idempotentStep(name: string, options: any): any {
  const { check, apply, ...rest } = options ?? {};
  const run = async (ctx: any) => {
    const { changed, result } = await idempotent({ check: () => check(ctx), apply: (drift: any) => apply(ctx, drift) });
    return result !== null && typeof result === 'object' ? result : { changed };
  };
  return blamed(step(name, { ...rest, run }), needed(options, ['check', 'apply']));
}

/** A step with a check facet: `check` finds the drift, `apply` removes it, `summarize` tells people about it. */
export function checkStep(name: string, options: any): any {
  const { apply, ...rest } = options ?? {};
  return blamed(step(name, { ...rest, run: apply }), needed(options, ['check', 'apply']));
}
