// The runner script: runs one job of the author's workflow on the host it finds.

import './prelude';
import * as workflowModule from 'kici:workflow';
import { evaluateRules, normalizeCacheSpecs } from '@kici-dev/sdk/runtime';
import { restoreCaches, saveCaches } from './cache';
import { takeSlot } from './concurrency';
import { ruleContext } from './context';
import { help, helps } from './helper';
import { EndHooks } from './hooks';
import { host, jobLog, log, timer, within, type Boot, type Timer } from './host';
import { runInit } from './init';
import { Job, type Request } from './job';
import { describeError, trace } from './outcome';
import { failedStep, runSteps } from './sequence';

/** Runs the job and reports its result; true when it succeeded. The host calls it once. */
async function run(request: Request, boot: Boot): Promise<boolean> {
  log(jobLog, boot.why ? `[kici] Running on Node ${boot.host}: ${boot.why}` : '[kici] Running on the embedded JavaScript host');
  const job = new Job(request, boot);
  void job.agent.listen();
  if (helps(job)) return help(job, workflowModule);
  const limit = request.jobTimeoutMs ? limitJob(job, request.jobTimeoutMs) : undefined;
  let error: string | undefined;
  try {
    error = await runJob(job);
  } catch (e) {
    error = job.ending === undefined ? describeError(e).message : undefined;
    if (error !== undefined && e instanceof Error) trace(jobLog, `[kici] Job failed: ${error}`, e);
  }
  limit?.cancel();
  if (job.ending === 'timeout') error = `job_timeout: job exceeded its timeout of ${request.jobTimeoutMs}ms`;
  return report(job, error);
}

/** Ends the job when its time is up. */
function limitJob(job: Job, ms: number): Timer {
  const limit = timer(ms);
  void limit.passed.then((passed) => {
    if (!passed || job.ending !== undefined) return;
    log(jobLog, `[kici] Job exceeded its timeout of ${ms}ms (job_timeout); aborting.`);
    job.end('timeout');
  });
  return limit;
}

/** Gives the job's error, undefined when there is none. */
async function runJob(job: Job): Promise<string | undefined> {
  await job.find(workflowModule);
  await takeSlot(job);
  const verdict = await within(jobLog, () => evaluateRules(job.job.rules, ruleContext(job)));
  if (!verdict.passed) {
    const why = verdict.error === undefined ? '' : ` (${describeError(verdict.error).message})`;
    log(jobLog, `[kici] Job '${job.label}' skipped: rule '${verdict.label}' did not pass${why}`);
    for (const unit of job.units) job.record({ name: unit.name, stepIndex: unit.index, status: 'skipped', durationMs: 0 });
    return undefined;
  }
  await runInit(job);
  const caches = await restoreCaches(job, normalizeCacheSpecs(job.job.cache), jobLog);
  await runSteps(job);
  switch (job.ending) {
    case 'timeout': case 'force': return undefined;
    case 'cancel': return cancelHooks(job);
  }
  const failed = failedStep(job);
  if (!failed) await saveCaches(job, caches);
  return endHooks(job, failed && `Step '${failed.name}' failed`);
}

async function endHooks(job: Job, failure: string | undefined): Promise<string | undefined> {
  const hooks = new EndHooks(job, failure ? 'failed' : 'success', job.steps.signal);
  if (failure) await hooks.run('onFailure', job.job.onFailure);
  else await hooks.run('onSuccess', job.job.onSuccess);
  await hooks.run('cleanup', job.job.cleanup);
  const reasons = [...(failure ? [failure] : []), ...hooks.failures.map((f) => f.reason)];
  return reasons.length ? reasons.join('; ') : undefined;
}

/** After a cancel: the hooks of the last step that has a result, then the job's. */
async function cancelHooks(job: Job): Promise<string> {
  const hooks = new EndHooks(job, 'cancelled', job.all.signal);
  const last = job.results.at(-1);
  const step = last && job.units[last.stepIndex].step;
  await hooks.run('onCancel', step?.onCancel);
  await hooks.run('cleanup', step?.cleanup);
  await hooks.run('onCancel', job.job.onCancel);
  await hooks.run('cleanup', job.job.cleanup);
  return ['Job was cancelled', ...hooks.failures.map((f) => f.reason)].join('; ');
}

function report(job: Job, error: string | undefined): boolean {
  const passed = error === undefined && job.ending === undefined;
  const stepResults = [...job.results].sort((a, b) => a.stepIndex - b.stepIndex);
  host.emit({
    type: 'job.complete', status: passed ? 'success' : 'failed', stepResults,
    ...(!passed && { error: error ?? 'Job was cancelled' }),
    ...(Object.keys(job.outputs).length && { outputs: job.outputs }),
    ...(Object.keys(job.secretOutputs).length && { secretOutputs: job.secretOutputs }),
    ...(job.droppedJobs && { droppedJobs: job.droppedJobs }),
  });
  return passed;
}

(globalThis as any).__kiciRun = run;
