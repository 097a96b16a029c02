// Waiting for something to become true, and steps that change only what is not yet as wanted.

import { step } from './core';
import { currentKiciApi } from './runtime';

/** The error of a wait whose time ran out. */
export class WaitForTimeoutError extends Error {
  readonly attempts: number;
  readonly timeoutMs: number;
  constructor(name: string, timeoutMs: number, attempts: number) {
    super(`${name}: timed out after ${timeoutMs}ms (attempts=${attempts})`);
    this.name = 'WaitForTimeoutError';
    this.attempts = attempts;
    this.timeoutMs = timeoutMs;
  }
}

const pause = (ms: number) => new Promise<void>((resolve) => { setTimeout(resolve, ms); });

/** Asks `check` until it gives something other than null, and gives that. A throwing check counts as null unless
 * `swallowErrors` is false. When time runs out, `onTimeout` decides the result, else WaitForTimeoutError is thrown. */
export async function waitFor(options: any): Promise<any> {
  const { name = 'waitFor', check, intervalMs = 2000, timeoutMs = 60000, initialDelayMs = 0, swallowErrors = true, onSuccess, onTimeout } = options;
  const end = Date.now() + timeoutMs;
  if (initialDelayMs > 0) await pause(initialDelayMs);
  for (let attempts = 1; ; attempts++) {
    let value: any = null;
    try {
      value = await check();
    } catch (error) {
      if (!swallowErrors) throw error;
    }
    if (value !== null && value !== undefined) return onSuccess ? ((await onSuccess(value)) ?? value) : value;
    if (Date.now() + intervalMs > end) {
      const error = new WaitForTimeoutError(name, timeoutMs, attempts);
      if (onTimeout) return onTimeout(error);
      throw error;
    }
    await pause(intervalMs);
  }
}

/** A step that waits; its check gets the step's context. An object that the check gives becomes the step's outputs. */
export function waitForStep(name: string, options: any): any {
  const { check, intervalMs, timeoutMs, initialDelayMs, swallowErrors, onSuccess, onTimeout, ...rest } = options;
  return step(name, {
    ...rest,
    run: async (ctx: any) => {
      const value = await waitFor({
        name, intervalMs, timeoutMs, initialDelayMs, swallowErrors,
        check: () => check(ctx),
        onSuccess: onSuccess && ((v: any) => onSuccess(v, ctx)),
        onTimeout: onTimeout && ((e: any) => onTimeout(e, ctx)),
      });
      return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : undefined;
    },
  });
}

/** Waits until the host is known as live again. */
export function waitForHostAlive(agentId: string, options: any = {}): Promise<any> {
  const api = currentKiciApi();
  return waitFor({
    name: `waitForHostAlive(${agentId})`, intervalMs: 3000, timeoutMs: 300000, ...options,
    check: async () => {
      const host = await api.inventory.get(agentId);
      return host?.status === 'ready' ? host : null;
    },
  });
}

/** Asks for a reboot of the host this job runs on; with the id of an agent it then waits until that one is back. */
export async function restartHost(options: any = {}): Promise<any> {
  const { deadlineMs, agentId, ...wait } = options;
  await currentKiciApi().host.requestReboot(deadlineMs === undefined ? {} : { deadlineMs });
  return agentId ? waitForHostAlive(agentId, wait) : undefined;
}

/** Inside a step: looks, and changes only when something is not as wanted. It takes no part in check mode. */
export async function idempotent(options: any): Promise<{ changed: boolean; drift: any; result: any }> {
  const drift = await options.check();
  if (drift === null || drift === undefined) return { changed: false, drift: null, result: undefined };
  return { changed: true, drift, result: await options.apply(drift) };
}

/** A step made of `idempotent`. */
export function idempotentStep(name: string, options: any): any {
  const { check, apply, ...rest } = options;
  return step(name, {
    ...rest,
    run: async (ctx: any) => {
      const { changed, result } = await idempotent({ check: () => check(ctx), apply: (drift: any) => apply(ctx, drift) });
      return result !== null && typeof result === 'object' ? result : { changed };
    },
  });
}

/** A step with a check facet: `check` finds the drift, `apply` removes it, `summarize` tells people about it. */
export function checkStep(name: string, options: any): any {
  const { apply, ...rest } = options;
  return step(name, { ...rest, run: apply });
}
