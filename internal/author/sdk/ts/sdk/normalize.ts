// Options with several spellings, brought to the one that lock files and runners use. Each gives undefined for nothing
// and throws an Error that says what is wrong.

import { shown } from './report';
import { kindOf } from './schema';

/** An approval as a lock file has it. */
export interface Approval {
  clauses: ({ team: string } | { user: string })[];
  reason?: string;
  timeoutSeconds?: number;
  when: 'always' | 'drift';
}

/** Reads `true`, a list of approvers or an object. `false` and undefined are no approval. */
export function normalizeApproval(approval: any): Approval | undefined {
  if (approval === undefined || approval === null || approval === false) return undefined;
  if (approval === true) return { clauses: [], when: 'always' };
  if (Array.isArray(approval)) return { clauses: approval.map(clause), when: 'always' };
  if (typeof approval !== 'object') throw new Error('approval must be true, a list of approvers or an object');
  const { approvers, reason, timeout, when = 'always', ...rest } = approval;
  const unknown = Object.keys(rest)[0];
  if (unknown) throw new Error(`approval has no option '${unknown}'`);
  if (when !== 'always' && when !== 'drift') throw new Error(`approval.when must be 'always' or 'drift', not ${shown(when)}`);
  if (approvers !== undefined && !Array.isArray(approvers)) throw new Error('approval.approvers must be a list');
  if (reason !== undefined && typeof reason !== 'string') throw new Error('approval.reason must be text');
  if (timeout !== undefined && !isDuration(timeout)) throw new Error('approval.timeout must be a positive number of seconds');
  return {
    clauses: (approvers ?? []).map(clause),
    ...(reason !== undefined && { reason }),
    ...(timeout !== undefined && { timeoutSeconds: timeout }),
    when,
  };
}

function clause(one: any): { team: string } | { user: string } {
  const keys = one !== null && typeof one === 'object' ? Object.keys(one) : [];
  const value = keys.length === 1 && (keys[0] === 'team' || keys[0] === 'user') ? one[keys[0]] : undefined;
  if (typeof value !== 'string' || value === '') throw new Error('an approver must be {team: name} or {user: name}');
  return one;
}

/** A cache as a lock file and a runner have it. */
export interface CacheSpec {
  key: string;
  paths: string[];
  restoreKeys?: string[];
}

/** What a cache may say. */
export const cacheOptions = ['key', 'paths', 'restoreKeys'];

/** Reads one cache or a list of them. */
export function normalizeCacheSpecs(cache: any): CacheSpec[] | undefined {
  if (cache === undefined || cache === null || cache === false) return undefined;
  return (Array.isArray(cache) ? cache : [cache]).map((one) => {
    const { key, paths, restoreKeys } = one ?? {};
    if (typeof key !== 'string' || key === '') throw new Error('cache.key must be text');
    const list = typeof paths === 'string' ? [paths] : paths;
    if (!isTexts(list) || list.length === 0) throw new Error('cache.paths must be a list of paths');
    if (restoreKeys !== undefined && !isTexts(restoreKeys)) throw new Error('cache.restoreKeys must be a list of key prefixes');
    return { key, paths: list, ...(restoreKeys !== undefined && { restoreKeys }) };
  });
}

function isTexts(list: any): list is string[] {
  return Array.isArray(list) && list.every((s) => typeof s === 'string' && s !== '');
}

/** What an entry of `init` may say: one that runs a command, and the options of mise. */
export const initOptions = { run: ['run', 'shell', 'cache', 'timeout', 'env'], mise: ['shell', 'cache', 'timeout', 'env'] };

/** Checks the preparation of a job's tools and gives it back. */
export function checkInit(init: any): unknown {
  if (init === undefined) return undefined;
  for (const one of Array.isArray(init) ? init : [init]) {
    const known = one === false || one === 'auto' || one === 'mise' || typeof one?.run === 'string' || (one?.mise !== null && typeof one?.mise === 'object');
    if (!known) throw new Error(`init must be false, 'auto', 'mise', {mise: {…}}, {run: 'a command'} or a list of these, not ${shown(one)}`);
    const { timeout, shell, env, cache } = one?.mise ?? one;
    if (shell !== undefined && (typeof shell !== 'string' || shell === '')) throw new Error(`init.shell must be the name of a shell, not ${shown(shell)}`);
    checkVariables(env, 'init.env');
    try {
      normalizeCacheSpecs(cache);
    } catch (e: any) {
      throw new Error(`init.${e.message}`);
    }
    if (timeout !== undefined && !isDuration(timeout)) throw new Error(`init.timeout must be a positive number of milliseconds, not ${shown(timeout)}`);
  }
  return init;
}

/** A retry as a lock file has it. */
export interface Retry {
  maxAttempts: number;
  delayMs: number;
  backoff: 'exponential' | 'fixed';
  maxDelayMs: number;
}

/** What a retry may say. */
export const retryOptions = ['maxAttempts', 'delayMs', 'backoff', 'maxDelayMs', 'retryIf'];

/** Reads a number of attempts or an object; `retryIf` stays with the runner. */
export function normalizeRetry(retry: any): Retry | undefined {
  if (retry === undefined || retry === null) return undefined;
  const { maxAttempts, delayMs = 1000, backoff = 'exponential', maxDelayMs = 30000, retryIf } = typeof retry === 'number' ? { maxAttempts: retry } : retry;
  if (!Number.isSafeInteger(maxAttempts) || maxAttempts < 1) throw new Error('retry.maxAttempts must be a whole number of at least 1');
  if (backoff !== 'exponential' && backoff !== 'fixed') throw new Error(`retry.backoff must be 'exponential' or 'fixed', not ${shown(backoff)}`);
  if (retryIf !== undefined && typeof retryIf !== 'function') throw new Error(`retry.retryIf must be a function, not ${shown(retryIf)}`);
  if (![delayMs, maxDelayMs].every((ms) => ms === 0 || isDuration(ms))) throw new Error('retry.delayMs and retry.maxDelayMs must be numbers of milliseconds, 0 or more');
  return { maxAttempts, delayMs, backoff, maxDelayMs };
}

/** Whether the value is a time, in whatever unit: more than nothing, and no more than servers can read. */
export const isDuration = (value: unknown): boolean => typeof value === 'number' && value > 0 && value <= Number.MAX_SAFE_INTEGER;

/** Refuses variables that are no map of texts, numbers and flags, or whose names no process can have. */
export function checkVariables(env: any, name: string): void {
  if (env === undefined) return;
  if (kindOf(env) !== 'object' || typeof env.then === 'function') throw new Error(`${name} must be a map of variables, not ${shown(env)}`);
  for (const [key, value] of Object.entries(env)) {
    checkVariableName(key, name);
    if (!['string', 'number', 'boolean'].includes(typeof value)) throw new Error(`${name} '${key}' must hold texts, not ${shown(value)}`);
  }
}

/** Refuses what no process can have as the name of a variable. */
export function checkVariableName(key: unknown, name: string): void {
  if (typeof key !== 'string' || key === '' || /[=\0]/.test(key)) throw new Error(`${name}: ${shown(key)} cannot be the name of a variable`);
}
