// Caches of the user: declared on jobs and steps, and `ctx.cache`. Archives are made and opened by the host; where they
// are kept is the orchestrator's to say. A cache that fails makes a job slower and never fails it.

import { normalizeCacheSpecs, shown } from '@kici-dev/sdk/runtime';
import { host, log } from './host';
import type { Job } from './job';
import { describeError } from './outcome';

interface Spec { key: string; paths: string[]; restoreKeys?: string[] }

/** A declared cache after its restore. */
export interface CacheState {
  spec: Spec;
  /** The pseudo step index of its save. */
  saveIndex: number;
  /** The very key was there, so there is nothing to save. */
  exact: boolean;
}

async function restore(job: Job, spec: Spec): Promise<{ hit: boolean; matchedKey?: string; bytes?: number }> {
  const reply = await job.agent.ask('cache.request', { op: 'restore', key: spec.key, ...(spec.restoreKeys && { restoreKeys: spec.restoreKeys }) }, 'cache restore');
  if (!reply.hit) return { hit: false };
  const { bytes } = await host.call('unpack', { url: reply.downloadUrl, hash: reply.tarHash ?? '', root: job.boot.cwd, paths: spec.paths });
  return { hit: true, matchedKey: reply.matchedKey ?? spec.key, bytes };
}

async function save(job: Job, spec: Spec): Promise<{ outcome: 'saved' | 'skipped'; bytes?: number }> {
  const reply = await job.agent.ask('cache.request', { op: 'beginSave', key: spec.key }, 'cache save');
  if (reply.skip || !reply.uploadUrl) return { outcome: 'skipped' };
  const packed: { file: string; hash: string; size: number } | undefined = await host.call('pack', { root: job.boot.cwd, paths: spec.paths });
  if (!packed?.file) return { outcome: 'skipped' };
  await host.call('upload', { url: reply.uploadUrl, file: packed.file });
  host.emit({ type: 'cache.request', requestId: `${job.boot.nonce}-saved-${packed.hash}`, op: 'completeSave', key: spec.key, tarHash: packed.hash, sizeBytes: packed.size });
  return { outcome: 'saved', bytes: packed.size };
}

/** Restores declared caches; `owner` is the step's index, or -1 for the job. */
export async function restoreCaches(job: Job, specs: Spec[] | undefined, owner: number): Promise<CacheState[]> {
  const first = 3 * job.units.length + 100 + 1000 * (owner + 1);
  const states: CacheState[] = [];
  for (const [i, spec] of (specs ?? []).entries()) {
    let exact = false;
    await reported(first + i, 'restore', spec, async () => {
      const { hit, matchedKey, bytes } = await restore(job, spec);
      exact = matchedKey === spec.key;
      return { cacheOutcome: hit ? 'hit' : 'miss', ...(matchedKey && { matchedKey }), ...(bytes && { bytes }) };
    });
    states.push({ spec, exact, saveIndex: first + specs!.length + i });
  }
  return states;
}

/** Saves those declared caches whose key was not there. */
export async function saveCaches(job: Job, states: CacheState[]): Promise<void> {
  for (const { spec, exact, saveIndex } of states) {
    if (exact) continue;
    await reported(saveIndex, 'save', spec, async () => {
      const { outcome, bytes } = await save(job, spec);
      return { cacheOutcome: outcome, ...(bytes && { bytes }) };
    });
  }
}

// reported shows a restore or a save as a step of its own, which succeeds whatever happens.
async function reported(index: number, what: 'restore' | 'save', spec: Spec, fn: () => Promise<object>): Promise<void> {
  const stepName = `cache ${what}: ${spec.key}`;
  host.emit({ type: 'step.start', stepIndex: index, stepName, step_type: `cache:${what}`, state: 'running' });
  const begin = Date.now();
  let data: object;
  try {
    data = await fn();
  } catch (e) {
    log(index, `[kici] ${stepName} failed: ${describeError(e).message}`);
    data = { cacheOutcome: 'error' };
  }
  host.emit({
    type: 'step.complete', stepIndex: index, stepName, step_type: `cache:${what}`, status: 'success', durationMs: Date.now() - begin,
    secretsAccessed: [], data: { ...data, key: spec.key },
  });
}

/** `ctx.cache`. */
export function cacheApi(job: Job, index: number): any {
  const one = (spec: any): Spec => {
    const [only, ...more] = normalizeCacheSpecs(spec) ?? [];
    if (!only || more.length > 0) throw new TypeError(`the cache must be one { key, paths }, not ${shown(spec)}`);
    return only;
  };
  const safely = async <T>(what: string, spec: any, fn: (s: Spec) => Promise<T>, otherwise: T): Promise<T> => {
    const read = one(spec);
    try {
      return await fn(read);
    } catch (e) {
      log(index, `[kici] cache ${what}: ${read.key} failed: ${describeError(e).message}`);
      return otherwise;
    }
  };
  return {
    restore: (spec: any) => safely('restore', spec, async (s) => {
      const { hit, matchedKey } = await restore(job, s);
      return { hit, ...(matchedKey && { matchedKey }) };
    }, { hit: false } as { hit: boolean; matchedKey?: string }),
    save: (spec: any) => safely('save', spec, async (s) => {
      const { outcome } = await save(job, s);
      log(index, `[kici] cache save: ${s.key} ${outcome}`);
    }, undefined),
  };
}
