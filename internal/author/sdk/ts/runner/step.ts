// One step: rules, approval, hooks, cache, attempts.

import { evaluateRules, normalizeApproval, normalizeCacheSpecs, normalizeRetry, validateDrift, validateOutputs } from '@kici-dev/sdk/runtime';
import { restoreCaches, saveCaches, type CacheState } from './cache';
import { makeContext, ruleContext, type StepContext } from './context';
import { applyStepFiles, makeStepFiles, type StepFiles } from './environment';
import { observeStep } from './hooks';
import { host, log, sleep, within } from './host';
import { byteLength, type Job, type Status, type StepResult, type Unit } from './job';
import { attempt, describeError, trace, type Clock } from './outcome';
import { show } from './show';
import { controller, type Signal } from './signal';

/** The most that the outputs of a job may have together, in bytes of JSON: they travel in one frame, of 4 MiB with all else. */
const maxOutputs = 2 * 1024 * 1024;
/** The most that what a check found may have, in bytes of JSON. */
const maxDrift = 1024 * 1024;

type Ended = { status: Status; error?: any; outputs?: unknown; extra?: Record<string, unknown> };

/** Runs a step to its end and gives its result, which is recorded, too. `signal` aborts it. */
export async function runStep(job: Job, unit: Unit, signal: Signal): Promise<StepResult> {
  const verdict = await within(unit.index, () => evaluateRules(unit.step.rules, ruleContext(job, unit)));
  if (!verdict.passed) {
    const why = verdict.error === undefined ? '' : ` (${describeError(verdict.error).message})`;
    log(unit.index, `[kici] Step '${unit.name}' skipped: rule '${verdict.label}' did not pass${why}`);
    return complete(job, unit, { status: 'skipped' }, 0);
  }
  if (signal.aborted) return skipCancelled(job, unit);
  if (isIdle(job, unit)) {
    start(unit);
    return complete(job, unit, { status: 'skipped', extra: { checkOutcome: 'no_check' } }, 0);
  }
  const approval = normalizeApproval(unit.step.approval);
  if (approval?.when === 'always') {
    try {
      await interruptible(job.approve(unit), signal);
    } catch (error) {
      start(unit);
      return complete(job, unit, signal.aborted ? aborted(job, unit) : { status: 'failed', error }, 0);
    }
  }
  await observeStep(job, 'beforeStep', unit);
  const caches = await restoreCaches(job, normalizeCacheSpecs(unit.step.cache), unit.index);
  const result = await attempts(job, unit, signal, caches);
  await observeStep(job, 'afterStep', unit);
  return result;
}

// isIdle tells that a step has nothing to look at in a run that only looks. It is not executed, so nobody is asked to
// approve it, and no hook or cache goes with it.
function isIdle(job: Job, unit: Unit): boolean {
  return modeOf(job) !== 'apply' && typeof unit.step.check !== 'function';
}

const modeOf = (job: Job) => job.request.checkMode ?? 'apply';

/** Reports a step that never ran because its group had failed. */
export function skipCancelled(job: Job, unit: Unit): StepResult {
  start(unit);
  return complete(job, unit, { status: 'cancelled' }, 0);
}

function groupFields(unit: Unit): object {
  return unit.group ? { concurrencyKind: 'parallel-child', groupId: unit.group.id } : {};
}

function start(unit: Unit): void {
  host.emit({ type: 'step.start', stepIndex: unit.index, stepName: unit.name, state: 'running', ...groupFields(unit) });
}

/** Says that a child of a group waits for its turn. */
export function announcePending(unit: Unit): void {
  host.emit({ type: 'step.start', stepIndex: unit.index, stepName: unit.name, state: 'pending', ...groupFields(unit) });
}

function complete(job: Job, unit: Unit, ended: Ended, durationMs: number, accessed: string[] = []): StepResult {
  const error = ended.error === undefined ? undefined : describeError(ended.error);
  host.emit({
    type: 'step.complete', stepIndex: unit.index, stepName: unit.name, status: ended.status, durationMs, secretsAccessed: accessed,
    ...(error && { error }), ...(ended.outputs !== undefined && { outputs: ended.outputs }), ...ended.extra, ...groupFields(unit),
  });
  const result: StepResult = {
    name: unit.name, stepIndex: unit.index, status: ended.status, durationMs,
    ...(error && { error: error.message }), ...(ended.outputs !== undefined && { outputs: ended.outputs }),
  };
  job.record(result);
  return result;
}

async function attempts(job: Job, unit: Unit, signal: Signal, caches: CacheState[]): Promise<StepResult> {
  const retry = normalizeRetry(unit.step.retry) ?? { maxAttempts: 1, delayMs: 0, backoff: 'fixed', maxDelayMs: 0 };
  const files = await makeStepFiles();
  let result: StepResult;
  for (let n = 1; ; n++) {
    const { ended, durationMs, accessed } = await once(job, unit, signal, files);
    result = complete(job, unit, ended, durationMs, accessed);
    if (ended.status !== 'failed' || n >= retry.maxAttempts || signal.aborted || !(await wantsRetry(unit, ended.error, n))) {
      if (ended.status === 'failed') traceStep(unit, ended.error);
      break;
    }
    const delay = retry.backoff === 'fixed' ? retry.delayMs : Math.min(retry.delayMs * 2 ** (n - 1), retry.maxDelayMs);
    log(unit.index, `[kici] Step '${unit.name}' attempt ${n}/${retry.maxAttempts} failed: ${describeError(ended.error).message}; retrying in ${delay}ms`);
    if (!(await sleep(delay, signal))) break;
  }
  await applyStepFiles(files, job.env);
  if (result.status === 'success') await saveCaches(job, caches);
  return result;
}

async function wantsRetry(unit: Unit, error: any, n: number): Promise<boolean> {
  const { retryIf } = unit.step.retry ?? {};
  if (typeof retryIf !== 'function') return true;
  try {
    return Boolean(await retryIf(error, n));
  } catch (e) {
    log(unit.index, `[kici] retryIf of step '${unit.name}' failed: ${describeError(e).message}`);
    return false;
  }
}

// traceStep shows where in the author's file a step failed; the message alone goes into the step's status.
function traceStep(unit: Unit, error: any): void {
  if (typeof error?.stack === 'string') trace(unit.index, `[kici] Step '${unit.name}' failed: ${describeError(error).message}`, error);
}

/** One attempt, from its start message to the end of its commands. */
async function once(job: Job, unit: Unit, signal: Signal, files: StepFiles): Promise<{ ended: Ended; durationMs: number; accessed: string[] }> {
  const own = controller(signal);
  const made = makeContext(job, unit.index, unit.name, own.signal, { KICI_ENV: files.env, KICI_PATH: files.path });
  const ms = unit.step.timeout ?? job.defaultTimeout;
  start(unit);
  const begin = Date.now();
  const late = `Step '${unit.name}' timed out after ${ms}ms`;
  let ended: Ended = { status: 'success' };
  const outcome = await attempt((clock) => within(unit.index, async () => { ended = await body(job, unit, made, clock); }), own, made.scope, ms, late,
    { stepIndex: unit.index, stepName: unit.name });
  if ('error' in outcome) ended = { status: 'failed', error: outcome.error };
  else if ('expired' in outcome) ended = { status: 'failed', error: Object.assign(new Error(late), { stack: undefined }) };
  else if ('aborted' in outcome) ended = aborted(job, unit);
  if (ended.outputs !== undefined) job.outputs[unit.name] = ended.outputs;
  const accessed = made.accessed();
  await made.dispose();
  return { ended, durationMs: Date.now() - begin, accessed };
}

function aborted(job: Job, unit: Unit): Ended {
  if (job.ending === 'timeout') return { status: 'failed', error: Object.assign(new Error(`Step '${unit.name}' aborted: job timeout exceeded`), { stack: undefined }) };
  return { status: 'cancelled' };
}

/** The step's own functions: run, or check and then run. */
async function body(job: Job, unit: Unit, made: StepContext, clock: Clock): Promise<Ended> {
  const { step } = unit;
  if (typeof step.check !== 'function') return { status: 'success', outputs: outputsOf(job, unit, await step.run(made.ctx)) };
  const drift = await step.check(made.ctx);
  if (drift === null || drift === undefined) {
    const value = step.whenInSync ? await step.whenInSync(made.ctx) : undefined;
    return { status: 'skipped', outputs: outputsOf(job, unit, value), extra: { checkOutcome: 'skipped' } };
  }
  validateDrift(step.drift, drift);
  const driftSummary = show((await step.summarize?.(drift)) ?? '');
  log(unit.index, `[kici] Drift: ${driftSummary}`);
  const found = { driftSummary, drift: driftOf(unit, drift) };
  if (modeOf(job) !== 'apply') return { status: 'success', extra: { checkOutcome: 'dry-run', ...found } };
  if (normalizeApproval(step.approval)?.when === 'drift') {
    clock.stop(); // people take longer than steps
    try {
      await interruptible(job.approve(unit, { summaryMarkdown: driftSummary, drift: found.drift }), made.ctx.signal);
      clock.start();
    } catch (error) {
      return { status: 'failed', error, extra: { checkOutcome: 'declined', ...found } };
    }
  }
  return { status: 'success', outputs: outputsOf(job, unit, await step.run(made.ctx, drift)), extra: { checkOutcome: 'applied', ...found } };
}

/** What a step returned, checked against its schemas, as JSON keeps it. null and undefined are no outputs. */
function outputsOf(job: Job, unit: Unit, value: unknown): unknown {
  const checked = validateOutputs(unit.step.outputs, value);
  const text = checked === null || checked === undefined ? undefined : toJSON(unit, checked);
  if (text === undefined) return undefined;
  const size = byteLength(text);
  const left = maxOutputs - [...job.outputSizes].reduce((sum, [name, bytes]) => (name === unit.name ? sum : sum + bytes), 0);
  if (size > left) {
    const others = left < maxOutputs ? `, of which ${left} are left` : '';
    throw new Error(`Step '${unit.name}' returned outputs of ${size} bytes of JSON; the outputs of a job may have ${maxOutputs} bytes together${others}. Files belong into artifacts`);
  }
  job.outputSizes.set(unit.name, size);
  return JSON.parse(text);
}

function driftOf(unit: Unit, value: unknown): unknown {
  const text = toJSON(unit, value);
  const size = text === undefined ? 0 : byteLength(text);
  if (size > maxDrift) throw new Error(`The check of step '${unit.name}' found ${size} bytes of JSON; the limit is ${maxDrift}`);
  return text === undefined ? undefined : JSON.parse(text);
}

function toJSON(unit: Unit, value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (e) {
    throw new Error(`Step '${unit.name}' returned what JSON cannot hold: ${describeError(e).message}`);
  }
}

/** Waits for the promise, or throws when the signal is aborted first. */
function interruptible<T>(promise: Promise<T>, signal: Signal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
