// Hooks: functions of the author's around steps and at the end of the job.

import { makeContext } from './context';
import { host, jobLog, log, within } from './host';
import type { Job, Status, Unit } from './job';
import { attempt, describeError } from './outcome';
import { controller, type Signal } from './signal';

export type HookType = 'beforeStep' | 'afterStep' | 'onSuccess' | 'onFailure' | 'cleanup' | 'onCancel';

const hookTimeoutMs = 5 * 60 * 1000;

/** What a hook is told about the job so far. */
function outcomeOf(job: Job, status: Status): object {
  const failed = job.results.find((r) => r.status === 'failed');
  return {
    status,
    ...(status === 'failed' && failed && { reason: `Step '${failed.name}' failed` }),
    ...(failed && { failedStep: failed.name }),
    stepOutputs: { ...job.outputs },
    duration: Date.now() - job.startedAt,
  };
}

interface HookRun {
  type: HookType;
  hook: any;
  /** The pseudo index under which the hook is reported, and where its `$` output goes. */
  index: number;
  /** Where its log goes, and the name before its lines. */
  logIndex: number;
  logName: string;
  status: Status;
  signal: Signal;
}

/** Runs a hook and reports it; gives what went wrong. */
async function runHook(job: Job, run: HookRun): Promise<string | undefined> {
  const fn = typeof run.hook === 'function' ? run.hook : run.hook?.run;
  if (typeof fn !== 'function') return undefined;
  const ms = run.hook.timeout ?? hookTimeoutMs;
  const own = controller(run.signal);
  const made = makeContext(job, run.logIndex, run.logName, own.signal);
  made.ctx.outcome = outcomeOf(job, run.status);
  host.emit({ type: 'step.start', stepIndex: run.index, stepName: run.type, step_type: `hook:${run.type}`, state: 'running' });
  const begin = Date.now();
  const outcome = await attempt(() => within(run.logIndex, async () => fn(made.ctx)), own, made.scope, ms, `Hook ${run.type} timed out after ${ms}ms`,
    { stepIndex: run.index, stepName: run.type });
  const accessed = made.accessed();
  await made.dispose();
  const error = 'error' in outcome ? describeError(outcome.error)
    : 'expired' in outcome ? { message: `timed out after ${ms}ms` }
    : 'aborted' in outcome ? { message: 'aborted' } : undefined;
  host.emit({
    type: 'step.complete', stepIndex: run.index, stepName: run.type, step_type: `hook:${run.type}`, status: error ? 'failed' : 'success',
    durationMs: Date.now() - begin, secretsAccessed: accessed, ...(error && { error }),
  });
  return error?.message;
}

/** beforeStep and afterStep: observers, whose failure is logged and nothing else. */
export async function observeStep(job: Job, type: 'beforeStep' | 'afterStep', unit: Unit): Promise<void> {
  const hook = job.job[type];
  if (!hook || job.ending !== undefined) return;
  const status: Status = job.results.some((r) => r.status === 'failed') ? 'failed' : 'success';
  const failed = await runHook(job, {
    type, hook, status, index: job.units.length + 2 * unit.index + (type === 'afterStep' ? 1 : 0),
    logIndex: unit.index, logName: unit.name, signal: job.steps.signal,
  });
  if (failed !== undefined) log(unit.index, `[kici] ${type} hook failed: ${failed} (continuing -- hooks are observers)`);
}

/** Completion and cancel hooks: each gets the next pseudo index beyond those of the hooks around steps. */
export class EndHooks {
  private next: number;
  readonly failures: { type: HookType; reason: string }[] = [];

  constructor(private readonly job: Job, private readonly status: Status, private readonly signal: Signal) {
    this.next = 3 * job.units.length;
  }

  async run(type: HookType, hook: any): Promise<void> {
    if (!hook || this.signal.aborted) return;
    const index = this.next++;
    log(jobLog, `[kici] Running ${type} hook...`);
    const failed = await runHook(this.job, { type, hook, index, logIndex: index, logName: type, status: this.status, signal: this.signal });
    if (failed === undefined) {
      log(jobLog, `[kici] ${type} hook completed`);
      return;
    }
    log(jobLog, `[kici] ${type} hook failed: ${failed}`);
    this.failures.push({ type, reason: `Hook ${type} failed: ${failed}` });
  }
}
